// A typed operator that Invoke calls directly does what its operator in a workspace does: the same
// outputs, the same sentences, the same spans.
#include "opkit/op/call/direct_call.hpp"

#include <doctest/doctest.h>

#include <functional>

#include "opkit/core/channels_last.hpp"
#include "opkit/core/layout_registry.hpp"
#include "opkit/device/cpu_stream.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/op/typed_operator.hpp"
#include "support/error_of.hpp"

namespace direct_call_test { namespace {

using opkit::Attr;
using opkit::CPUContext;
using opkit::CPUStreamContext;
using opkit::CreateOperator;
using opkit::DType;
using opkit::Error;
using opkit::ErrorCode;
using opkit::In;
using opkit::Invoke;
using opkit::OperatorDef;
using opkit::OptionalIn;
using opkit::Out;
using opkit::ResolvedOperator;
using opkit::Shape;
using opkit::Tensor;
using opkit::Workspace;
using opkit::detail::SpanNames;

template <class Context, class T>
bool DirectScale(Context&, In<"x", T> x, OptionalIn<"bias", T> bias, Out<"y", T> y,
                 Attr<"scale", T> scale, const Attr<"mode", std::string>& mode) {
  if (mode.value() == "throw") throw std::runtime_error("the body threw");
  for (int64_t i = 0; i < y.size(); ++i)
    y[i] = static_cast<T>(x[i] * scale.value() + (bias ? bias[i] : T{0}));
  return mode.value() != "false";
}
OPKIT_OP(DirectScale)
    .SameShape<"x", "bias", "y">()
    .Inplace<"x", "y">()
    .Default<"scale">(2.0)
    .Default<"mode">("")
    .PointwiseCost(2)
    .Kernel<CPUContext, float, int32_t>();

template <class Context>
void DirectOnStreams(Context&, In<"x", float> x, Out<"y", float> y) {
  if (x.size() > 0 && y.size() > 0) y[0] = x[0];
}
OPKIT_OP(DirectOnStreams).SameShape<"x", "y">().Kernel<CPUContext>().Kernel<CPUStreamContext>();

Tensor Of(Shape shape, std::initializer_list<float> values) {
  return Tensor::From<float>(std::move(shape), values);
}
std::vector<float> Values(const Tensor& tensor) { return tensor.ToVector<float>(); }

// The run of the operator that CreateOperator makes, in a workspace, on the same tensors.
Tensor RunOperator(const std::vector<Tensor>& inputs, opkit::Arguments args) {
  const char* const names[] = {"x", "bias"};
  Workspace ws;
  OperatorDef def("DirectScale", {}, {"y"}, std::move(args));
  for (size_t i = 0; i < inputs.size(); ++i) {
    def.Input(names[i]);
    *ws.CreateTensor(names[i]) = inputs[i];
  }
  CreateOperator(def, &ws)->Run();
  return *ws.GetTensor("y");
}

TEST_CASE("a resolved typed operator is called directly until its operator is requested") {
  const Tensor x = Of({2}, {1, 2});
  ResolvedOperator scale("DirectScale", 1);
  CHECK(Values(scale({x})[0]) == std::vector<float>{2, 4});
  CHECK(scale.num_outputs() == 1);
  CHECK(scale.op().type() == "DirectScale");
  int runs = 0;
  struct Count final : opkit::ObserverBase<opkit::OperatorBase> {
    Count(opkit::OperatorBase* op, int* n) : ObserverBase(op), runs(n) {}
    void Start() override { ++*runs; }
    int* runs;
  };
  scale.op().AttachObserver(std::make_unique<Count>(&scale.op(), &runs));
  CHECK(Values(scale({x})[0]) == std::vector<float>{2, 4});
  CHECK(runs == 1);
}

TEST_CASE("each element type has its version, and an optional input may be left out") {
  const Tensor ints = Tensor::From<int32_t>({2}, {1, 2});
  CHECK(Invoke("DirectScale", {ints}, {{"scale", 3.0}})[0].ToVector<int32_t>() ==
        std::vector<int32_t>{3, 6});
  CHECK(Values(Invoke("DirectScale", {Of({2}, {1, 2}), Of({2}, {10, 20})})[0]) ==
        std::vector<float>{12, 24});
  CHECK(Values(Invoke("DirectScale", {Of({2}, {1, 2}), Tensor()})[0]) == std::vector<float>{2, 4});
}

TEST_CASE("errors have the text of the operator's own errors") {
  const Tensor x = Of({2}, {1, 2});
  struct Wrong {
    std::vector<Tensor> inputs;
    opkit::Arguments args;
    ErrorCode code;
  };
  const Wrong cases[] = {
      {{x}, {{"mode", "throw"}}, ErrorCode::kOperatorFailed},
      {{x}, {{"mode", "false"}}, ErrorCode::kOperatorFailed},
      {{x, Of({3}, {1, 2, 3})}, {}, ErrorCode::kInvalidArgument},
      {{x, Tensor::From<double>({2}, {1, 2})}, {}, ErrorCode::kTypeMismatch},
      {{Tensor::From<double>({2}, {1, 2})}, {}, ErrorCode::kTypeMismatch},
      {{Tensor::From<int32_t>({1}, {1})}, {{"scale", 0.5}}, ErrorCode::kOutOfRange},
      {{Of({1, 1, 1, 1, 1, 1, 1, 1, 1}, {1})}, {}, ErrorCode::kUnsupported},
      {{x}, {{"scale", "two"}}, ErrorCode::kInvalidArgument},
      {{x}, {{"scael", 1.0}}, ErrorCode::kInvalidArgument},
  };
  for (const Wrong& wrong : cases) {
    const Error direct = ErrorOf([&] { Invoke("DirectScale", wrong.inputs, wrong.args); });
    const Error by_operator = ErrorOf([&] { RunOperator(wrong.inputs, wrong.args); });
    CHECK(direct.code() == wrong.code);
    CHECK(std::string(direct.what()) == by_operator.what());
  }
  // A tensor that has a dtype and no memory; left out counts as such an input of a workspace.
  Tensor empty({2}, DType::kFloat32);
  empty.ReleaseMemory();
  const Error unread = ErrorOf([&] { Invoke("DirectScale", {empty}); });
  CHECK(unread.code() == ErrorCode::kUninitialized);
  CHECK(std::string(unread.what()) == ErrorOf([&] { RunOperator({empty}, {}); }).what());
}

TEST_CASE("inputs with strides are read as dense copies, in other layouts as converted ones") {
  const Tensor strided = Of({2, 2}, {1, 2, 3, 4}).Permute({1, 0});
  CHECK(Values(Invoke("DirectScale", {strided})[0]) == std::vector<float>{2, 6, 4, 8});
  const Tensor image = Of({1, 2, 1, 2}, {1, 2, 3, 4});
  const Tensor nhwc = ConvertLayout(image, opkit::Layout{opkit::ChannelsLast(), {}});
  CHECK(!nhwc.layout().is_standard());
  CHECK(Values(Invoke("DirectScale", {nhwc})[0]) == std::vector<float>{2, 4, 6, 8});
}

TEST_CASE("outputs are written where they are, but never over an input that is still read") {
  ResolvedOperator scale("DirectScale", 2);
  const Tensor x = Of({2}, {1, 2}), bias = Of({2}, {10, 20});
  std::vector<Tensor> out{x};
  scale.Run(std::vector{x, bias}, out);  // the schema pairs y with x
  CHECK(out[0].raw_data() == x.raw_data());
  CHECK(Values(x) == std::vector<float>{12, 24});
  out = {bias};
  scale.Run(std::vector{x, bias}, out);
  CHECK(out[0].raw_data() != bias.raw_data());
  CHECK(Values(bias) == std::vector<float>{10, 20});
  const Tensor matrix = Of({2, 2}, {1, 2, 3, 4});  // read by a dense copy of its transpose
  out = {matrix};
  ResolvedOperator("DirectScale", 1).Run(std::vector{matrix.Permute({1, 0})}, out);
  CHECK(Values(matrix) == std::vector<float>{1, 2, 3, 4});
  CHECK(Values(out[0]) == std::vector<float>{2, 6, 4, 8});
  out = {Tensor::From<int32_t>({3}, {1, 2, 3})};  // another dtype and shape
  scale.Run(std::vector{x, bias}, out);
  CHECK(Values(out[0]) == std::vector<float>{34, 68});
}

template <class Context>
void DirectTwice(Context&, In<"x", float> x, Out<"a", float> a, Out<"b", float> b) {
  for (int64_t i = 0; i < x.size(); ++i) a[i] = x[i] + 1;
  for (int64_t i = 0; i < x.size(); ++i) b[i] = x[i] * 10;
}
OPKIT_OP(DirectTwice)
    .SameShape<"x", "a", "b">()
    .Inplace<"x", "a">()
    .Inplace<"x", "b">()
    .Kernel<CPUContext>();

TEST_CASE("two outputs that share memory do not overwrite each other") {
  ResolvedOperator twice("DirectTwice", 1);
  for (const bool by_operator : {false, true}) {
    if (by_operator) static_cast<void>(twice.op());
    const Tensor x = Of({2}, {1, 2}), wide = Of({3}, {0, 0, 0});
    const std::vector<std::vector<Tensor>> all = {
        std::vector<Tensor>(2, Tensor({2}, DType::kFloat32)),  // copies of one
        {wide.Slice(0, 0, 2), wide.Slice(0, 1, 3)},
        {x, x}};
    for (std::vector<Tensor> out : all) {
      twice.Run(std::vector{x}, out);
      CHECK(Values(out[0]) == std::vector<float>{2, 3});
      CHECK(Values(out[1]) == (out[0].raw_data() == x.raw_data() ? std::vector<float>{20, 30}
                                                                 : std::vector<float>{10, 20}));
    }
  }
}

TEST_CASE("an Error leaves the caller's outputs as they were") {
  ResolvedOperator scale("DirectScale", 1, {{"mode", "throw"}});
  std::vector<Tensor> out{Of({3}, {7, 8, 9})};
  const void* const memory = out[0].raw_data();
  CHECK_THROWS_AS(scale.Run(std::vector{Of({2}, {1, 2})}, out), Error);
  CHECK(out[0].raw_data() == memory);
  CHECK(out[0].shape() == Shape{3});
}

// The spans that one call records, as text.
std::string Spans(const std::function<void()>& call) {
  struct Sink final : opkit::detail::SpanSink {
    void Open(opkit::Invocation& now, SpanNames names, const opkit::Device* device,
              bool) noexcept override {
      text +=
          opkit::StrCat("open ", static_cast<int>(now.kind), " ", opkit::InternedName(names.name),
                        " on ", device ? ToString(*device) : "none", "\n");
    }
    void Close() noexcept override { text += "close\n"; }
    bool WantsWork() const noexcept override { return true; }
    void EndSpan() noexcept override { text += "end\n"; }
    void Describe(const opkit::detail::SpanWork& work) noexcept override {
      text += opkit::StrCat(opkit::InternedName(work.shapes), ", ", work.flops, " flops, ",
                            work.bytes, " bytes, ", opkit::InternedName(work.backend), "\n");
    }
    void Completed(uint64_t) noexcept override {}
    void Pushed(const opkit::Invocation&, SpanNames) noexcept override {}
    std::string text;
  };
  static Sink sink;  // a sink lives as long as the process
  sink.text.clear();
  opkit::detail::g_span_sink = &sink;
  call();
  opkit::detail::g_span_sink = nullptr;
  return sink.text;
}

TEST_CASE("a profile sees the same span, with the same work") {
  const std::vector<Tensor> inputs{Of({2}, {1, 2}), Of({2}, {10, 20})};
  const std::string direct = Spans([&] { Invoke("DirectScale", inputs); });
  CHECK(direct == Spans([&] { RunOperator(inputs, {}); }));
  CHECK(direct ==
        "open 2 DirectScale on cpu\nend\nfloat32[2], float32[2], 4 flops, 24 bytes, reference\n"
        "close\n");
}

TEST_CASE("on another device, and where the operator has another kernel, its operator runs") {
  const opkit::Device stream{opkit::DeviceType::kCPUStream, 0};
  CHECK(Values(Invoke("DirectOnStreams", {Of({1}, {3})}, {}, {.device = stream})[0]) ==
        std::vector<float>{3});
  const Error no_kernel =
      ErrorOf([&] { Invoke("DirectScale", {Of({1}, {3})}, {}, {.device = stream}); });
  CHECK(no_kernel.code() == ErrorCode::kNotFound);
  CHECK(no_kernel.message().find("has no kernel for cpu_stream") != std::string::npos);
}

}  // namespace
}  // namespace direct_call_test
