// Calling operators by name, once and again and again.
#include "opkit/op/invoke.hpp"

#include <doctest/doctest.h>

#include <functional>

#include "opkit/device/cpu_stream.hpp"
#include "opkit/engine/thread_pool.hpp"
#include "opkit/op/function/function_operator.hpp"
#include "opkit/op/typed_operator.hpp"
#include "support/allocations.hpp"
#include "support/error_of.hpp"

namespace invoke_test {
namespace {

using opkit::Attr;
using opkit::CPUContext;
using opkit::Device;
using opkit::DeviceType;
using opkit::DType;
using opkit::ErrorCode;
using opkit::In;
using opkit::Invoke;
using opkit::InvokeOptions;
using opkit::Operator;
using opkit::OperatorDef;
using opkit::OptionalIn;
using opkit::Out;
using opkit::ResolvedOperator;
using opkit::Shape;
using opkit::Tensor;

template <class Context>
void InvokedAxpy(Context& context, In<"x", float> x, In<"y", float> y, Out<"z", float> z,
                 Attr<"alpha", float> alpha) {
  if (alpha < 0) opkit::Throw(ErrorCode::kInvalidArgument, "alpha must not be negative");
  ParallelFor(context, z.size(), [=](int64_t i) {
    if (x[i] == 13) opkit::Throw(ErrorCode::kInvalidArgument, "13 brings bad luck");
    z[i] = alpha * x[i] + y[i];
  });
}
OPKIT_OP(InvokedAxpy)
    .SameShape<"x", "y", "z">()
    .Inplace<"y", "z">()
    .Default<"alpha">(1.f)
    .Kernel<CPUContext>()
    .Kernel<opkit::CPUStreamContext>();

template <class Context>
void InvokedBias(Context&, In<"x", float> x, OptionalIn<"bias", float> bias, Out<"y", float> y) {
  for (int64_t i = 0; i < y.size(); ++i) y[i] = x[i] + (bias ? bias[0] : 0);
}
OPKIT_OP(InvokedBias).SameShape<"x", "y">().Kernel<CPUContext>();

// Copies its input to every output; what an engine of this name does, too.
template <int kAdd>
class CopiesOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    for (int o = 0; o < OutputSize(); ++o) {
      Tensor* y = OutputTensorCopyFrom(o, Input(0));
      y->mutable_data<float>()[0] += kAdd;
    }
    return true;
  }
};
OPERATOR_SCHEMA(InvokedCopies).NumInputs(1).NumOutputs(1, 3);
REGISTER_CPU_OPERATOR(InvokedCopies, CopiesOp<0>);
REGISTER_CPU_OPERATOR_WITH_ENGINE(InvokedCopies, ADDS, CopiesOp<100>);
class RefusesOp final : public Operator<CPUContext> {
 public:
  RefusesOp(const OperatorDef& def, opkit::Workspace* ws) : Operator<CPUContext>(def, ws) {
    throw opkit::UnsupportedOperatorFeature("it refuses");
  }
  bool RunOnDevice() override { return false; }
};
REGISTER_CPU_OPERATOR_WITH_ENGINE(InvokedCopies, REFUSES, RefusesOp);

// Half done when it fails, with an output of another size.
class HalfDoneOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    Output(0, Shape{7}, DType::kInt32);
    return Input(0).data<float>()[0] > 0;
  }
};
OPERATOR_SCHEMA(InvokedHalfDone).NumInputs(1).NumOutputs(1);
REGISTER_CPU_OPERATOR(InvokedHalfDone, HalfDoneOp);

// Makes an output that is no tensor.
class TextOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    *Output<std::string>(0) = "text";
    return true;
  }
};
OPERATOR_SCHEMA(InvokedText).NumInputs(0).NumOutputs(1);
REGISTER_CPU_OPERATOR(InvokedText, TextOp);

// Makes its first output only.
class LazyOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    Output(0, Shape{0}, DType::kFloat32);
    return true;
  }
};
OPERATOR_SCHEMA(InvokedLazy).NumInputs(0).NumOutputs(1, 2);
REGISTER_CPU_OPERATOR(InvokedLazy, LazyOp);

class NeedyOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override { return Input(0).numel() > 0; }
};
OPERATOR_SCHEMA(InvokedNeedy).NumInputs(1).NumOutputs(0);
REGISTER_CPU_OPERATOR(InvokedNeedy, NeedyOp);

// Calls what the test has set from its body, where there is something.
std::function<void()> t_reenter;
template <class Context>
class ReentrantOp final : public Operator<Context> {
 public:
  USE_OPERATOR_FUNCTIONS(Context);
  using Operator<Context>::Operator;
  bool RunOnDevice() override {
    if (const auto call = t_reenter) call();
    const Tensor& x = Input(0);
    Output(0, x.shape(), x.dtype())->CopyFrom(x);
    return true;
  }
};
OPERATOR_SCHEMA(InvokedReentrant).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(InvokedReentrant, ReentrantOp<CPUContext>);
REGISTER_CPU_STREAM_OPERATOR(InvokedReentrant, ReentrantOp<opkit::CPUStreamContext>);

REGISTER_OP(InvokedFunction)
    .setForward([](const opkit::AttrMap&, std::span<const opkit::OpTensor>,
                   std::span<opkit::OpTensor>, opkit::OpResource&) {});

Tensor Of(Shape shape, std::initializer_list<float> values) {
  return Tensor::From<float>(std::move(shape), values);
}
const Tensor kX = Of({2}, {1, 2}), kY = Of({2}, {10, 20});

TEST_CASE("an operator is called by name, with attributes") {
  const std::vector<Tensor> out = Invoke("InvokedAxpy", {kX, kY}, {{"alpha", 2.f}});
  REQUIRE(out.size() == 1);
  CHECK(out[0].ToVector<float>() == std::vector<float>{12, 24});
  CHECK(kY.ToVector<float>() == std::vector<float>{10, 20});
}

TEST_CASE("a default-constructed tensor leaves an optional input out") {
  CHECK(Invoke("InvokedBias", {kX, Of({1}, {5})})[0].ToVector<float>() == std::vector<float>{6, 7});
  CHECK(Invoke("InvokedBias", {kX, Tensor()})[0].ToVector<float>() == std::vector<float>{1, 2});
  CHECK(Invoke("InvokedBias", {kX})[0].ToVector<float>() == std::vector<float>{1, 2});
  CHECK(Contains(ErrorOf([] {
                   Invoke("InvokedBias", {Tensor(), kX});
                 }).message(),
                 "leaves out input 0 'x', which is not optional"));
}

TEST_CASE("an Error names the values of a call as the schema does") {
  const std::string what =
      ErrorOf([] {
        Invoke("InvokedAxpy", {Of({1}, {-1}), Of({1}, {1})}, {{"alpha", -1.f}});
      }).what();
  CHECK(Contains(what, "input 0 'x': float32[1]"));
  CHECK(Contains(what, "input 1 'y': float32[1]"));
}

TEST_CASE("an input and an output of one name stay two values") {
  static const opkit::FunctionOpBuilder registered =
      opkit::FunctionOpBuilder("InvokedSameNames", __FILE__, __LINE__)
          .input("v")
          .input("output 0")
          .output("v")
          .setInferShape([](const opkit::AttrMap&, opkit::ShapeVectors& in,
                            opkit::ShapeVectors& out) { out[0] = in[0]; })
          .setForward([](const opkit::AttrMap&, std::span<const opkit::OpTensor> in,
                         std::span<opkit::OpTensor> out, opkit::OpResource&) {
            out[0].data<float>()[0] = 1;
            out[0].data<float>()[0] += in[0].data<float>()[0] + 10 * in[1].data<float>()[0];
          });
  const Tensor x = Of({1}, {2}), y = Of({1}, {3});
  CHECK(Invoke("InvokedSameNames", {x, y})[0].data<float>()[0] == 33);
  CHECK(x.data<float>()[0] == 2);
  CHECK(y.data<float>()[0] == 3);
}

TEST_CASE("unknown names are errors that name the nearest") {
  CHECK(Contains(ErrorOf([] {
                   Invoke("InvokedAxpi", {kX, kY});
                 }).message(),
                 "no operator 'InvokedAxpi' is registered"));
  CHECK(Contains(ErrorOf([] {
                   Invoke("InvokedAxpy", {kX, kY}, {{"alhpa", 2.f}});
                 }).message(),
                 "did you mean 'alpha'?"));
}

TEST_CASE(
    "the operator runs on the requested device, by default on that of the first input that is "
    "there") {
  Tensor on_stream = Of({2}, {1, 2});
  on_stream.SetDevice({DeviceType::kCPUStream, 0});
  CHECK(Contains(ErrorOf([&] {
                   Invoke("InvokedBias", {on_stream, kX});
                 }).message(),
                 "has no kernel for cpu_stream"));
  CHECK(Contains(ErrorOf([&] {
                   Invoke("InvokedBias", {Tensor(), on_stream});
                 }).message(),
                 "has no kernel for cpu_stream"));
  InvokeOptions options;
  options.device = Device{};
  CHECK(Invoke("InvokedBias", {on_stream}, {}, options)[0].ToVector<float>() ==
        std::vector<float>{1, 2});
}

TEST_CASE("the engine that is named runs") {
  InvokeOptions options;
  options.num_outputs = 1;
  CHECK(Invoke("InvokedCopies", {kX}, {}, options)[0].data<float>()[0] == 1);
  options.backends = "ADDS";
  CHECK(Invoke("InvokedCopies", {kX}, {}, options)[0].data<float>()[0] == 101);
  ResolvedOperator resolved("InvokedCopies", 1, {}, options);
  resolved({kX});
  CHECK(resolved.op().backend() == "ADDS");
}

TEST_CASE("a call may require its engine") {
  InvokeOptions options;
  options.num_outputs = 1;
  options.backends = "REFUSES";
  CHECK(Invoke("InvokedCopies", {kX}, {}, options)[0].data<float>()[0] == 1);
  options.backend_need = opkit::kRequired;
  const opkit::Error error = ErrorOf([&] { Invoke("InvokedCopies", {kX}, {}, options); });
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(Contains(error.message(), "it refuses"));
}

TEST_CASE("an engine that no kernel of the program has is an Error") {
  InvokeOptions options;
  options.num_outputs = 1;
  options.backends = "ADS";
  const opkit::Error error = ErrorOf([&] { Invoke("InvokedCopies", {kX}, {}, options); });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(Contains(error.message(), "no backend 'ADS' has a kernel in this program"));
  CHECK_THROWS_AS(Invoke("InvokedCopies", {kX}, {}, {.backends = "ADDS,ADS", .num_outputs = 1}),
                  opkit::Error);
}

TEST_CASE("if the schema leaves the number of outputs open, the caller must give it") {
  const opkit::Error error = ErrorOf([] { Invoke("InvokedCopies", {kX}); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(error.message() ==
        "operator InvokedCopies has 1 to 3 outputs; say how many with InvokeOptions::num_outputs");
  InvokeOptions options;
  options.num_outputs = 3;
  const auto out = Invoke("InvokedCopies", {kX}, {}, options);
  CHECK(out.size() == 3);
  CHECK(out[2].ToVector<float>() == std::vector<float>{1, 2});
  options.num_outputs = 4;
  CHECK(Contains(ErrorOf([&] { Invoke("InvokedCopies", {kX}, {}, options); }).message(),
                 "has 4 outputs, expected 1 to 3"));
}

TEST_CASE("the error for a function operator names the place for its number of outputs") {
  CHECK(Contains(ErrorOf([] { Invoke("InvokedFunction", {kX}); }).message(),
                 "or once for all in its parseAttrs (REGISTER_OP(…).setParseAttrs(f))"));
}

TEST_CASE("an output that the operator did not make is an error, and an empty one is not") {
  const opkit::Error error =
      ErrorOf([] { Invoke("InvokedLazy", {}, {}, InvokeOptions{.num_outputs = 2}); });
  CHECK(error.code() == ErrorCode::kOperatorFailed);
  CHECK(error.message() ==
        "operator InvokedLazy returned without making 'output 1'; get it with Output(i, shape, "
        "dtype) and write to it");
  // One that the caller gives is there already.
  std::vector<Tensor> out{Of({1}, {1}), Of({1}, {1})};
  ResolvedOperator lazy("InvokedLazy", 0, {}, InvokeOptions{.num_outputs = 2});
  lazy.Run({}, out);
  CHECK(out[0].shape() == Shape{0});
}

TEST_CASE("a tensor without dtype for a required input is an error") {
  CHECK(Contains(ErrorOf([] {
                   Invoke("InvokedAxpy", {kX, Tensor()});
                 }).message(),
                 "leaves out input 1 'y', which is not optional; an Invoke leaves out a tensor "
                 "that has no dtype yet"));
  CHECK(Contains(ErrorOf([] { Invoke("InvokedNeedy", {Tensor()}); }).message(),
                 "leaves that one out (by an empty name, or by an Invoke with a tensor that has no "
                 "dtype yet)"));
}

TEST_CASE("an output that is no tensor is an error") {
  CHECK(Contains(ErrorOf([] { Invoke("InvokedText", {}); }).message(),
                 "'output 0' of operator InvokedText is not a tensor"));
}

TEST_CASE("a resolved operator runs on tensor after tensor, of any shape") {
  ResolvedOperator axpy("InvokedAxpy", 2, {{"alpha", 2.f}});
  for (int round = 0; round < 2; ++round) {
    CHECK(axpy({kX, kY})[0].ToVector<float>() == std::vector<float>{12, 24});
    CHECK(axpy({Of({}, {1}), Of({}, {1})})[0].ToVector<float>() == std::vector<float>{3});
    const auto out = axpy({Of({2, 2}, {1, 2, 3, 4}), Of({2, 2}, {0, 0, 0, 0})});
    CHECK(out[0].shape() == Shape{2, 2});
    CHECK(out[0].ToVector<float>() == std::vector<float>{2, 4, 6, 8});
  }
}

TEST_CASE("results are new tensors each time") {
  ResolvedOperator axpy("InvokedAxpy", 2);
  const auto first = axpy({kX, kY}), second = axpy({kX, kX});
  CHECK(first[0].ToVector<float>() == std::vector<float>{11, 22});
  CHECK(second[0].ToVector<float>() == std::vector<float>{2, 4});
}

TEST_CASE("nothing of the caller's is held between calls") {
  ResolvedOperator axpy("InvokedAxpy", 2);
  Tensor x = Of({2}, {1, 2}), y = Of({2}, {1, 2});
  std::vector<Tensor> out(1);
  axpy.Run(std::vector{x, y}, out);
  CHECK(x.storage().use_count() == 1);
  CHECK(y.storage().use_count() == 1);
  CHECK(out[0].storage().use_count() == 1);
  x.mutable_data<float>()[0] = 13;
  CHECK_THROWS_AS(axpy.Run(std::vector{x, y}, out), opkit::Error);
  CHECK(x.storage().use_count() == 1);
  CHECK(out[0].storage().use_count() == 1);
  CHECK_THROWS_AS(axpy.Run(std::vector{x, kX.View({2, 1})}, out), opkit::Error);
  CHECK(x.storage().use_count() == 1);
  CHECK(out[0].storage().use_count() == 1);
}

TEST_CASE("a strided input's dense copy is gone with the call") {
  ResolvedOperator axpy("InvokedAxpy", 2);
  const Tensor x = Of({2, 2}, {1, 2, 3, 4}).Permute({1, 0});
  const int64_t before = opkit::GetAllocator(DeviceType::kCPU).live_bytes();
  axpy({x, x});
  CHECK(opkit::GetAllocator(DeviceType::kCPU).live_bytes() == before);
}

TEST_CASE("running into given outputs uses their memory and allocates nothing") {
  const std::vector<Tensor> in{kX, kY};
  std::vector<Tensor> out{Of({2}, {0, 0})};
  const void* memory = out[0].raw_data();
  ResolvedOperator axpy("InvokedAxpy", 2);
  axpy.Run(in, out);  // learns the shapes
  const int64_t live = opkit::GetAllocator(DeviceType::kCPU).live_bytes();
  const int64_t before = Allocations();
  for (int i = 0; i < 10; ++i) axpy.Run(in, out);
  const int64_t after = Allocations();
  CHECK(after == before);
  CHECK(opkit::GetAllocator(DeviceType::kCPU).live_bytes() == live);
  CHECK(out[0].raw_data() == memory);
  CHECK(out[0].ToVector<float>() == std::vector<float>{11, 22});
}

TEST_CASE("an output may be an input's memory where the schema allows it") {
  ResolvedOperator axpy("InvokedAxpy", 2);
  Tensor x = Of({2}, {1, 2}), y = Of({2}, {10, 20});
  std::vector<Tensor> out{y};
  axpy.Run(std::vector{x, y}, out);
  CHECK(out[0].raw_data() == y.raw_data());
  CHECK(y.ToVector<float>() == std::vector<float>{11, 22});
  out = {x};
  axpy.Run(std::vector{x, y}, out);
  CHECK(out[0].raw_data() != x.raw_data());
  CHECK(x.ToVector<float>() == std::vector<float>{1, 2});
}

TEST_CASE("an error leaves the outputs as they were, and the operator fit for use") {
  ResolvedOperator half("InvokedHalfDone", 1);
  std::vector<Tensor> out{Of({2}, {5, 6})};
  const Tensor kept = out[0];
  CHECK_THROWS_AS(half.Run(std::vector{Of({1}, {0})}, out), opkit::Error);
  CHECK(out[0].shape() == Shape{2});
  CHECK(out[0].dtype() == DType::kFloat32);
  CHECK(out[0].raw_data() == kept.raw_data());
  half.Run(std::vector{Of({1}, {1})}, out);
  CHECK(out[0].shape() == Shape{7});

  ResolvedOperator axpy("InvokedAxpy", 2);
  CHECK(ErrorOf([&] { axpy({Of({1}, {13}), Of({1}, {1})}); }).message() == "13 brings bad luck");
  CHECK(Contains(ErrorOf([&] {
                   axpy({kX, Of({1}, {1})});
                 }).message(),
                 "must have that of input 0"));
  CHECK(axpy({kX, kY})[0].ToVector<float>() == std::vector<float>{11, 22});
}

TEST_CASE("wrong counts are refused before anything runs") {
  ResolvedOperator axpy("InvokedAxpy", 2);
  CHECK(ErrorOf([&] { axpy({kX}); }).message() ==
        "operator InvokedAxpy was resolved for 2 inputs and 1 outputs, but called with 1 and 1");
  std::vector<Tensor> none;
  CHECK_THROWS_AS(axpy.Run(std::vector{kX, kY}, none), opkit::Error);
}

TEST_CASE("a call during a call is an Error with a remedy, and leaves both as they were") {
  InvokeOptions options;
  for (const DeviceType device : {DeviceType::kCPU, DeviceType::kCPUStream}) {
    options.device = Device{device, 0};
    ResolvedOperator again("InvokedReentrant", 1, {}, options);
    std::string refused;
    t_reenter = [&] { refused = ErrorOf([&] { again({kY}); }).what(); };
    std::vector<Tensor> out = again({kX});
    t_reenter = {};
    CHECK(Contains(refused,
                   "the ResolvedOperator of InvokedReentrant is called while another call of it "
                   "runs, and takes one thread at a time: make one for each thread"));
    CHECK(out[0].ToVector<float>() == std::vector<float>{1, 2});
    // The handle is free again, after a call that failed as well.
    t_reenter = [] { opkit::Throw(ErrorCode::kInvalidArgument, "enough"); };
    CHECK(ErrorOf([&] { again({kX}); }).message() == "enough");
    CHECK_THROWS_AS(again({kX, kY}), opkit::Error);
    t_reenter = {};
    CHECK(again({kY})[0].ToVector<float>() == std::vector<float>{10, 20});
    ResolvedOperator moved = std::move(again);
    t_reenter = [&] { refused = ErrorOf([&] { moved({kY}); }).message(); };
    refused.clear();
    moved({kX});
    t_reenter = {};
    CHECK(Contains(refused, "one thread at a time"));
    CHECK(ErrorOf([&] { moved({kY, kX}); }).code() == ErrorCode::kInvalidArgument);
    CHECK(moved({kY})[0].ToVector<float>() == std::vector<float>{10, 20});
  }
}

TEST_CASE("a moved handle goes on") {
  ResolvedOperator first("InvokedAxpy", 2, {{"alpha", 3.f}});
  first({kX, kY});
  ResolvedOperator second = std::move(first);
  CHECK(second({kX, kY})[0].ToVector<float>() == std::vector<float>{13, 26});
  ResolvedOperator third("InvokedBias", 1);
  third = std::move(second);
  CHECK(third({kX, kY})[0].ToVector<float>() == std::vector<float>{13, 26});
}

TEST_CASE("on a stream a call returns when the work is done, and rethrows its exception") {
  InvokeOptions options;
  options.device = Device{DeviceType::kCPUStream, 0};
  ResolvedOperator axpy("InvokedAxpy", 2, {{"alpha", 2.f}}, options);
  CHECK(axpy({kX, kY})[0].ToVector<float>() == std::vector<float>{12, 24});
  CHECK(ErrorOf([&] { axpy({Of({1}, {13}), Of({1}, {1})}); }).message() == "13 brings bad luck");
  CHECK(axpy({kX, kY})[0].ToVector<float>() == std::vector<float>{12, 24});
}

TEST_CASE("inside a call the current invocation is its operator") {
  static opkit::Invocation seen;
  static const bool registered [[maybe_unused]] = [] {
    opkit::OpRegistry::Global()
        .AddSchema("InvokedWho", __FILE__, __LINE__)
        .NumInputs(0)
        .NumOutputs(0);
    class WhoOp final : public Operator<CPUContext> {
     public:
      using Operator::Operator;
      bool RunOnDevice() override {
        seen = opkit::CurrentInvocation();
        return true;
      }
    };
    return opkit::detail::RegisterKernel(
        {"InvokedWho", DeviceType::kCPU, "", opkit::Kernel::Priority::kDefault, __FILE__, __LINE__},
        &opkit::detail::CreateClass<WhoOp>);
  }();
  Invoke("InvokedWho", {});
  CHECK(seen.kind == opkit::Invocation::Kind::kOperator);
  CHECK(seen.id != 0);
  CHECK(opkit::CurrentInvocation().id == 0);
}

TEST_CASE("a negative number of inputs is an error") {
  CHECK_THROWS_AS(ResolvedOperator("InvokedAxpy", -1), opkit::Error);
}

}  // namespace

// Says which kernel ran: 1 the fast one, which takes floats, 4 and more of them, 0 the plain one.
class PlainWhichOp : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override { return Say(0); }

 protected:
  bool Say(int which) {
    *Output(0, {1}, DType::kInt32)->mutable_data<int32_t>() = which;
    return true;
  }
};
class FastWhichOp final : public PlainWhichOp {
 public:
  using PlainWhichOp::PlainWhichOp;
  static std::vector<opkit::KernelConfig> Propose(const opkit::KernelQuery& query) {
    const opkit::TensorInfo& x = query.inputs[0];
    if (x.dtype != DType::kFloat32 || !x.shape.is_known() || x.shape.ToShape().numel() < 4)
      return {};
    return {opkit::KernelConfig()};
  }
  bool RunOnDevice() override { return Say(1); }
};
OPKIT_OPERATOR_SCHEMA(WhichKernel).NumInputs(1).NumOutputs(1);
OPKIT_REGISTER_CPU_OPERATOR(WhichKernel, PlainWhichOp);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(WhichKernel, INVOKED_FAST, FastWhichOp);
OPKIT_REGISTER_BACKEND_RANK("INVOKED_FAST", 10);

TEST_CASE("a call runs the best kernel for its inputs, another one when they change") {
  auto which = [](const std::vector<Tensor>& out) { return out.at(0).data<int32_t>()[0]; };
  CHECK(which(Invoke("WhichKernel", {Tensor::From<float>({4}, {1, 2, 3, 4})})) == 1);
  CHECK(which(Invoke("WhichKernel", {Tensor::From<float>({2}, {1, 2})})) == 0);
  ResolvedOperator which_kernel("WhichKernel", 1);
  CHECK(which(which_kernel({Tensor::From<float>({4}, {1, 2, 3, 4})})) == 1);
  CHECK(which(which_kernel({Tensor::From<float>({2}, {1, 2})})) == 0);
  CHECK(which(which_kernel({Tensor::From<int32_t>({4}, {1, 2, 3, 4})})) == 0);
  CHECK(which(which_kernel({Tensor::From<float>({4}, {1, 2, 3, 4})})) == 1);
  CHECK(which(Invoke("WhichKernel", {Tensor::From<float>({4}, {1, 2, 3, 4})}, {},
                     {.backends = "reference"})) == 0);
}

TEST_CASE("a call goes on while its caller does, and ends with its outputs or its Error") {
  for (const int threads : {1, 2}) {
    opkit::ThreadPool pool(threads);
    const opkit::PoolScope in_pool(pool);
    opkit::PendingOutputs sum = opkit::InvokeAsync("InvokedAxpy", {kX, kY});
    CHECK(sum.Get()[0].ToVector<float>() == std::vector<float>{11, 22});
    CHECK(sum.event().IsFinished());
    const Tensor x = Tensor::From<float>({2}, {1, 2});
    const auto held = x.storage().use_count();
    opkit::PendingOutputs ended = opkit::InvokeAsync("InvokedAxpy", {x, kY});
    ended.Get();
    CHECK(x.storage().use_count() == held);  // though `ended` is still there
    CHECK(ErrorOf([&] { sum.Get(); }).code() == ErrorCode::kFailedPrecondition);
    opkit::PendingOutputs fails = opkit::InvokeAsync("InvokedAxpy", {kX, kY}, {{"alpha", -1.f}});
    CHECK(Contains(ErrorOf([&] { fails.Get(); }).message(), "alpha must not be negative"));
    CHECK(Contains(fails.event().ErrorMessage(), "alpha must not be negative"));
    CHECK(ErrorOf([] { opkit::InvokeAsync("InvokedNothing", {kX}); }).code() ==
          ErrorCode::kNotFound);
  }
}

}  // namespace invoke_test
