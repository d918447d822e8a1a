#include "opkit/op/function/function_operator.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <thread>

#include "opkit/device/cpu_stream.hpp"
#include "opkit/engine/parallel_for.hpp"
#include "opkit/op/boundary/convert/abi_attributes.hpp"
#include "opkit/op/create_operator.hpp"
#include "opkit/op/gradient/gradient.hpp"
#include "opkit/op/invoke.hpp"
#include "support/allocations.hpp"
#include "support/bench.hpp"
#include "support/error_of.hpp"
#include "support/function_ops.hpp"

namespace function_operator_test {
using namespace opkit;  // NOLINT: as an author writes it

namespace {

// REGISTER_OP inside a test case.
#define LOCAL_OP(name)                                                      \
  [[maybe_unused]] static const FunctionOpBuilder OPKIT_UNIQUE(local_op_) = \
      FunctionOpBuilder(#name, __FILE__, __LINE__)

using Map = std::map<std::string, std::string>;

Status Double(const AttrMap&, OpIns in, OpOuts out, OpResource&) {
  const float* x = in[0].data<float>();
  float* y = out[0].data<float>();
  for (int64_t i = 0; i < in[0].size(); ++i) y[i] = 2 * x[i];
  return SUCCESS;
}
Status DoubleBackward(const AttrMap&, OpIns in, OpOuts out, OpResource&) {  // {dy, x, y} -> {dx}
  for (int64_t i = 0; i < in[0].size(); ++i) out[0].data<float>()[i] = 2 * in[0].data<float>()[i];
  return SUCCESS;
}

REGISTER_OP(FnBody).setForward(CallBody).setInferShape(SameShape).doc("Runs the test's body.");
REGISTER_OP(FnBodyStrided).setForward(CallBody).setInferShape(SameShape).acceptsStrides();
REGISTER_OP(FnBodyAdding).setForward(CallBody).setInferShape(SameShape).acceptsAdd();
REGISTER_OP(FnBodyBare).setForward(CallBody);
REGISTER_OP(com.me.Double).setForward(Double).setParseAttrs(OneToOne).setInferShape(SameShape);
REGISTER_OP(me::Double).setForward(Double).setParseAttrs(OneToOne).setInferShape(SameShape);
REGISTER_OP(FnDouble)
    .setForward(Double)
    .setBackward(DoubleBackward)
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape)
    .inplace({{0, 0}});

std::atomic<bool> beside_is_open{false};
std::atomic<uint64_t> beside_parent{0}, beside_caller{0};

void DoubleWhenOpen(const AttrMap& attrs, OpIns in, OpOuts out, OpResource& res) {
  beside_is_open.wait(false);
  beside_parent = CurrentInvocation().parent;
  if (attrs.Get("fails", false)) Throw(ErrorCode::kOutOfRange, "it was told to fail");
  for (int64_t i = 0; i < in[0].size(); ++i) out[0].data<float>()[i] = 2 * in[0].data<float>()[i];
  static_cast<void>(res);
}
REGISTER_OP(FnWhenOpen).setForward(DoubleWhenOpen).setParseAttrs(OneToOne).setInferShape(SameShape);

}  // namespace

TEST_CASE("an operator of functions takes neither float8 nor packed elements") {
  for (const DType dtype : {DType::kInt4, DType::kUInt2, DType::kFloat8E4M3FN}) {
    CAPTURE(dtype);
    const Tensor x(Shape{2}, dtype);
    const Error input = ErrorOf([&] { Invoke("FnDouble", {x}); });
    CHECK(input.code() == ErrorCode::kUnsupported);
    CHECK(
        Contains(input.message(), StrCat("input 0 of operator FnDouble is of ", dtype,
                                         ", which functions and libraries do not take; cast it")));
    const Error attribute = ErrorOf([&] { detail::AbiAttributes(Arguments{{"table", x}}); });
    CHECK(Contains(attribute.message(), StrCat("attribute table is of ", dtype)));
  }
}

TEST_CASE("an operator's name need not be an identifier") {
  for (const char* op : {"com.me.Double", "me::Double"})
    CHECK(Invoke(op, {Tensor::From<float>({2}, {1, 2})})[0].ToVector<float>() ==
          std::vector<float>{2, 4});
}

TEST_CASE("undeclared scratch is an Error, and scratch of 0 bytes is none") {
  const auto forward = [](const AttrMap&, OpIns, OpOuts out, OpResource& res) {
    out[0].data<float>()[0] = res.scratch() ? static_cast<float>(res.scratch_bytes()) : -1;
  };
  LOCAL_OP(FnScratchNone).setForward(forward).setParseAttrs(OneToOne).setInferShape(SameShape);
  LOCAL_OP(FnScratchEmpty)
      .setForward(forward)
      .setParseAttrs(OneToOne)
      .setInferShape(SameShape)
      .scratch([](const AttrMap&, const ShapeVectors& in) { return 4 * (in[0][0] - 1); });
  CHECK(ErrorOf([&] { Invoke("FnScratchNone", {Tensor::From<float>({1}, {0})}); })
            .message()
            .starts_with("operator FnScratchNone has no scratch: declare it with scratch(bytes)"));
  CHECK(Invoke("FnScratchEmpty", {Tensor::From<float>({1}, {0})})[0].data<float>()[0] == 0);
  CHECK(Invoke("FnScratchEmpty", {Tensor::From<float>({3}, {0, 0, 0})})[0].data<float>()[0] == 8);
}

TEST_CASE("an asynchronous invocation runs beside its function, and ends before the operator") {
  enum class Way { kWaits, kLeaves, kFails, kFailsAlone, kThrows, kNever };
  Way way = Way::kWaits;
  LOCAL_OP(FnBeside)
      .setForward([&](const AttrMap&, OpIns in, OpOuts out, OpResource& res) {
        beside_caller = CurrentInvocation().id;
        const bool fails = way == Way::kFails || way == Way::kFailsAlone;
        if (way == Way::kNever) res.invoke_async("FnNobody", {in[0]}, {out[0]});
        const OpTensor half = res.temporary(in[0].shape(), DType::kFloat32);
        const OpPending first = res.invoke_async("FnWhenOpen", {in[0]}, {half}, {{"fails", fails}});
        const OpPending second = res.invoke_async("FnWhenOpen", {in[0]}, {out[0]});
        beside_is_open = true;
        beside_is_open.notify_all();
        if (way == Way::kThrows) Throw(ErrorCode::kFailedPrecondition, "the caller fails");
        if (way == Way::kLeaves || way == Way::kFailsAlone) return;
        if (way == Way::kFails) {
          const Error error = ErrorOf([&] { first.Wait(); });
          CHECK(error.code() == ErrorCode::kOutOfRange);
          CHECK(Contains(error.message(), "it was told to fail"));
          return;
        }
        first.Wait();
        second.Wait();
        second.Wait();
        for (int64_t i = 0; i < in[0].size(); ++i) out[0].data<float>()[i] += half.data<float>()[i];
      })
      .setParseAttrs(OneToOne)
      .setInferShape(SameShape);
  const auto run = [&](Way chosen, int threads) {
    way = chosen;
    beside_is_open = threads == 1;  // a pool of one runs them at once
    ThreadPool pool(threads);
    const PoolScope in_pool(pool);
    return Invoke("FnBeside", {Vector({1, 2})})[0].ToVector<float>();
  };
  for (const int threads : {1, 2, 8}) {
    CAPTURE(threads);
    CHECK(run(Way::kWaits, threads) == Floats{4, 8});
    CHECK(beside_parent == beside_caller);
    CHECK(run(Way::kLeaves, threads) == Floats{2, 4});
    if (threads > 1) {
      CHECK(run(Way::kFails, threads) == Floats{2, 4});
      const Error alone = ErrorOf([&] { run(Way::kFailsAlone, threads); });
      CHECK(Contains(alone.what(), "it was told to fail"));
      CHECK(Contains(alone.what(), "in operator FnBeside"));
    }
    CHECK(Contains(ErrorOf([&] { run(Way::kThrows, threads); }).message(), "the caller fails"));
    CHECK(Contains(ErrorOf([&] { run(Way::kNever, threads); }).what(), "FnNobody"));
  }
}

TEST_CASE("a function makes outputs whose shape the data decides, but not on a CPU stream") {
  const auto forward = [](const AttrMap&, OpIns in, OpOuts out, OpResource& res) {
    CHECK_FALSE(out[0].has_value());
    const auto count = static_cast<int64_t>(in[0].data<float>()[0]);
    const OpTensor made = res.allocate_output(0, {count}, DType::kFloat32);
    for (int64_t i = 0; i < count; ++i) made.data<float>()[i] = static_cast<float>(i);
  };
  FunctionOpBuilder("FnCountUp", __FILE__, __LINE__)
      .setForward(forward)
      .setForward(forward, "cpu_stream")
      .input("count")
      .output("numbers")
      .allocatesOutputs()
      .flops(
          [](const AttrMap&, const ShapeVectors& in, const ShapeVectors&) { return 7 * in[0][0]; });
  const auto run = [](float count, DeviceType device = DeviceType::kCPU) {
    InvokeOptions options;
    options.device = Device(device);
    return Invoke("FnCountUp", {Vector({count})}, {}, options)[0].ToVector<float>();
  };
  CHECK(run(3) == Floats{0, 1, 2});
  CHECK(run(0).empty());
  CHECK(Contains(ErrorOf([&] { run(2, DeviceType::kCPUStream); }).message(),
                 "allocate_output in operator FnCountUp, which runs on a stream of the CPU's, "
                 "where all shapes must be inferred"));
  // The stream keeps the memory of what was issued before the failure until it gets there.
  Event drained(Device{DeviceType::kCPUStream});
  detail::CPUStream::Get({DeviceType::kCPUStream, 0}, 0).Record(drained);
  drained.Finish();
  const TensorInfo x(DType::kFloat32, Shape{5});
  CHECK(OpRegistry::Global()
            .GetSchema("FnCountUp")
            .Cost(OperatorDef("FnCountUp", {"x"}, {"y"}), {x}, {x})
            .flops == 35);
  const TensorInfo unknown(DType::kFloat32, {});
  CHECK(OpRegistry::Global()
            .GetSchema("FnCountUp")
            .Cost(OperatorDef("FnCountUp", {"x"}, {"y"}), {unknown}, {x})
            .flops == 0);  // its function is not asked
  OpRegistry::Global().Remove("FnCountUp");
}

TEST_CASE("declared attributes, inputs and outputs are the schema's and those of every node") {
  FunctionOpBuilder("FnDeclared", __FILE__, __LINE__)
      .setForward([](const AttrMap& attrs, OpIns in, OpOuts out, OpResource&) {
        out[0].data<float>()[0] = in[0].data<float>()[0] * attrs.Get<float>("factor");
      })
      .input("x", "numbers", {DType::kFloat32})
      .output("y")
      .arg("factor", "what is multiplied by", 3.f)
      .requiredArg<std::string>("name", "must be given")
      .setInferShape(SameShape);
  const OpSchema& schema = OpRegistry::Global().GetSchema("FnDeclared");
  CHECK(schema.inputs()[0].dtypes == std::vector<DType>{DType::kFloat32});
  CHECK(schema.FindAttribute("name")->required);
  CHECK(Invoke("FnDeclared", {Vector({2})}, {{"name", "n"}})[0].ToVector<float>() == Floats{6});
  CHECK(Contains(ErrorOf([] {
                   Invoke("FnDeclared", {Vector({2})}, {{"name", "n"}, {"facotr", 2.f}});
                 }).message(),
                 "FnDeclared has no argument 'facotr' (did you mean 'factor'?"));
  CHECK(Contains(ErrorOf([] { Invoke("FnDeclared", {Vector({2})}); }).message(),
                 "FnDeclared needs the argument 'name'"));
  CHECK(Contains(ErrorOf([] {
                   Invoke("FnDeclared", {Tensor::From<int64_t>({1}, {2})}, {{"name", "n"}});
                 }).message(),
                 "input 0 'x' is int64[1], expected one of [float32]"));
  OpRegistry::Global().Remove("FnDeclared");
}

TEST_CASE("an output of another dtype than declared is refused") {
  FunctionOpBuilder("FnDeclaredOut", __FILE__, __LINE__)
      .setForward([](const AttrMap&, OpIns, OpOuts, OpResource&) {})
      .input("x")
      .output("y", "", {DType::kInt8})
      .setInferShape(SameShape);  // the dtype is that of x
  CHECK(Contains(ErrorOf([] { Invoke("FnDeclaredOut", {Vector({2})}); }).message(),
                 "output 0 'y' is float32[1], expected one of [int8]"));
  OpRegistry::Global().Remove("FnDeclaredOut");
}

TEST_CASE("an operator made of functions is like any other in the registry") {
  const OpSchema& schema = OpRegistry::Global().GetSchema("FnBody");
  CHECK(schema.doc() == "Runs the test's body.");
  CHECK(Contains(schema.file(), "function_operator_test.cpp"));
  const auto kernels = OpRegistry::Global().KernelsOf("FnBody");
  REQUIRE(kernels.size() == 1);
  CHECK(kernels[0]->device == DeviceType::kCPU);
  CHECK(kernels[0]->line == schema.line());
  CHECK_FALSE(Contains(StrCat(CheckRegistrations()), "FnBody"));
}

TEST_CASE("tensors show dtype, shape, strides, size, device and request") {
  Bench bench;
  *bench.ws.CreateTensor("x") = Tensor({2, 3}, DType::kInt64);
  auto& op = bench.Create(OperatorDef("FnBody", {"x"}, {"y"}));
  int calls = 0;
  g_body = [&](OpIns in, OpOuts out, OpResource& res) {
    ++calls;
    CHECK(in.size() == 1);
    CHECK(in[0].dtype() == DType::kInt64);
    CHECK(std::vector<int64_t>(in[0].shape().begin(), in[0].shape().end()) ==
          std::vector<int64_t>{2, 3});
    CHECK(std::vector<int64_t>(in[0].strides().begin(), in[0].strides().end()) ==
          std::vector<int64_t>{3, 1});
    CHECK(in[0].size() == 6);
    CHECK(in[0].nbytes() == 48);
    CHECK(in[0].dim(-1) == 3);
    CHECK(in[0].shape()[-1] == 3);
    CHECK(in[0].stride(-1) == in[0].strides()[in[0].rank() - 1]);
    CHECK_THROWS_AS(in[0].dim(in[0].rank()), Error);
    CHECK_THROWS_AS(static_cast<void>(in[0].strides()[-in[0].rank() - 1]), Error);
    CHECK(in[0].device() == Device{});
    CHECK(in[0].data<int64_t>() == bench.ws.GetTensor("x")->data<int64_t>());
    CHECK(out[0].req() == OpReq::kWrite);
    CHECK(out[0].dtype() == DType::kInt64);
    CHECK(ToString(out[0]) == "int64[2, 3] on cpu");
    CHECK(res.device() == Device{});
    CHECK(res.stream() == nullptr);
    const Error error = ErrorOf([&] { in[0].data<float>(); });
    CHECK(error.code() == ErrorCode::kTypeMismatch);
    CHECK(error.message() == "tensor int64[2, 3] on cpu is accessed as float32");
    for (int64_t i = 0; i < 6; ++i) out[0].data<int64_t>()[i] = i;
  };
  CHECK(op.Run());
  CHECK(calls == 1);
  CHECK(bench.ws.GetTensor("y")->ToVector<int64_t>() == std::vector<int64_t>{0, 1, 2, 3, 4, 5});
}

TEST_CASE("views follow a shape that changes between runs") {
  Bench bench;
  bench.Add("x", {1, 2, 3});
  auto& op = bench.Create(OperatorDef("FnDouble", {"x"}, {"y"}));
  op.Run();
  CHECK(bench.Values("y") == Floats{2, 4, 6});
  bench.Add("x", {5});
  op.Run();
  CHECK(bench.Values("y") == Floats{10});
  *bench.ws.GetTensor("x") = Tensor::From<float>({1, 2, 1, 2, 1, 2, 1}, {1, 2, 3, 4, 5, 6, 7, 8});
  op.Run();
  CHECK(bench.ws.GetTensor("y")->shape() == Shape{1, 2, 1, 2, 1, 2, 1});
  CHECK(bench.Values("y")[7] == 16);
}

TEST_CASE("a run of the fast form allocates nothing") {
  Bench bench;
  bench.Add("x", {1, 2, 3});
  auto& op = bench.Create(OperatorDef("FnDouble", {"x"}, {"y"}));
  op.Run();
  const int64_t before = Allocations();
  for (int i = 0; i < 10; ++i) op.Run();
  CHECK(Allocations() - before == 0);
}

TEST_CASE("strided inputs arrive dense, or as they are where the functions use strides") {
  Bench bench;
  const Tensor matrix = Tensor::From<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  *bench.ws.CreateTensor("x") = matrix.Permute(std::vector<int>{1, 0});  // [3, 2], strides [1, 3]
  Floats seen;
  g_body = [&](OpIns in, OpOuts, OpResource&) {
    seen.clear();
    const auto strides = in[0].strides();
    for (int64_t i = 0; i < in[0].dim(0); ++i)
      for (int64_t j = 0; j < in[0].dim(1); ++j)
        seen.push_back(in[0].data<float>()[i * strides[0] + j * strides[1]]);
    seen.push_back(static_cast<float>(strides[0]));
    seen.push_back(in[0].is_dense());
  };
  bench.Create(OperatorDef("FnBody", {"x"}, {"y"})).Run();
  CHECK(seen == Floats{1, 4, 2, 5, 3, 6, 2, 1});
  bench.Create(OperatorDef("FnBodyStrided", {"x"}, {"y"})).Run();
  CHECK(seen == Floats{1, 4, 2, 5, 3, 6, 1, 0});
}

TEST_CASE("in place: only if declared, and the output shows it") {
  Bench bench;
  bench.Add("x", {1, 2});
  bench.Create(OperatorDef("FnDouble", {"x"}, {"x"})).Run();
  CHECK(bench.Values("x") == Floats{2, 4});
  CHECK(Contains(ErrorOf([&] { bench.Create(OperatorDef("FnBody", {"x"}, {"x"})); }).message(),
                 "FnBody may not run in place"));

  static OpReq seen;
  LOCAL_OP(FnSeesInplace)
      .setForward([](const AttrMap&, OpIns, OpOuts out, OpResource&) { seen = out[0].req(); })
      .setInferShape(SameShape)
      .inplace({{0, 0}});
  bench.Create(OperatorDef("FnSeesInplace", {"x"}, {"x"})).Run();
  CHECK(seen == OpReq::kInplace);
  bench.Create(OperatorDef("FnSeesInplace", {"x"}, {"y"})).Run();
  CHECK(seen == OpReq::kWrite);
}

TEST_CASE("add: the functions see it when they accept it, else their result is added up") {
  Bench bench;
  bench.Add("x", {1, 2});
  bench.Add("y", {10, 20});
  auto& plain = bench.Create(OperatorDef("FnDouble", {"x"}, {"y"}));
  SetOutputReq(plain, 0, OpReq::kAdd);
  plain.Run();
  plain.Run();
  CHECK(bench.Values("y") == Floats{14, 28});

  OpReq seen{};
  g_body = [&](OpIns in, OpOuts out, OpResource&) {
    seen = out[0].req();
    out[0].data<float>()[0] += in[0].data<float>()[0];
  };
  auto& adding = bench.Create(OperatorDef("FnBodyAdding", {"x"}, {"y"}));
  SetOutputReq(adding, 0, OpReq::kAdd);
  adding.Run();
  CHECK(seen == OpReq::kAdd);
  CHECK(bench.Values("y") == Floats{15, 28});

  *bench.ws.GetTensor("y") = Tensor::From<float>({3}, {1, 1, 1});
  const Error error = ErrorOf([&] { adding.Run(); });
  CHECK(error.code() == ErrorCode::kFailedPrecondition);
  CHECK(Contains(error.message(),
                 "output 0 of operator FnBodyAdding is to be added to, but it is "
                 "float32[3] on cpu and the result is float32[2]"));
  CHECK(bench.Values("y") == Floats{1, 1, 1});
}

TEST_CASE("results are added up for every dtype") {
  auto check = [](auto value) {
    using T = decltype(value);
    Workspace ws;
    *ws.CreateTensor("x") = Tensor::From<T>({1}, {T(3)});
    *ws.CreateTensor("y") = Tensor::From<T>({1}, {T(4)});
    g_body = [](OpIns in, OpOuts out, OpResource&) {
      std::memcpy(out[0].raw_data(), in[0].raw_data(), static_cast<size_t>(in[0].nbytes()));
    };
    auto op = CreateOperator(OperatorDef("FnBody", {"x"}, {"y"}), &ws);
    SetOutputReq(*op, 0, OpReq::kAdd);
    op->Run();
    CHECK(ws.GetTensor("y")->ToVector<T>()[0] == T(7));
  };
  check(int8_t{}), check(uint16_t{}), check(int64_t{}), check(float16{}), check(bfloat16{});
  check(float{}), check(double{});
}

TEST_CASE("add: a run that could not begin leaves nothing to add later") {
  Bench bench;
  bench.Add("x", {1});
  bench.Add("y", {10});
  LOCAL_OP(FnAddTwice)
      .setForward([](const AttrMap&, OpIns in, OpOuts out, OpResource&) {
        for (OpTensor& one : out) one.data<float>()[0] = in[0].data<float>()[0];
      })
      .setParseAttrs(+[](std::map<std::string, std::string>, int* ins, int* outs) {
        *ins = 1, *outs = 2;
        return 1;
      })
      .setInferShape(SameShape);
  auto& op = bench.Create(OperatorDef("FnAddTwice", {"x"}, {"y", "z"}));
  SetOutputReq(op, 0, OpReq::kAdd);
  SetOutputReq(op, 1, OpReq::kAdd);
  CHECK(ErrorOf([&] { op.Run(); }).code() == ErrorCode::kFailedPrecondition);  // no z to add to
  bench.Add("z", {20});
  op.Run();
  CHECK(bench.ws.GetTensor("y")->ToVector<float>() == std::vector<float>{11});
  CHECK(bench.ws.GetTensor("z")->ToVector<float>() == std::vector<float>{21});
}

TEST_CASE("add: an output that gets memory of its own keeps what it held") {
  Bench bench;
  bench.Add("x", {1, 2});
  const Tensor matrix = Tensor::From<float>({2, 2}, {10, 0, 20, 0});
  *bench.ws.CreateTensor("y") = matrix.Slice(1, 0, 1).Permute({1, 0}).Slice(0, 0, 1);
  *bench.ws.CreateTensor("x") = Tensor::From<float>({1, 2}, {1, 2});
  g_body = [](OpIns in, OpOuts out, OpResource&) {
    for (int64_t i = 0; i < 2; ++i) out[0].data<float>()[i] = in[0].data<float>()[i];
  };
  auto& op = bench.Create(OperatorDef("FnBody", {"x"}, {"y"}));
  SetOutputReq(op, 0, OpReq::kAdd);
  op.Run();
  CHECK(bench.ws.GetTensor("y")->ToVector<float>() == std::vector<float>{11, 22});
}

TEST_CASE("none: an unwanted output has no memory") {
  Bench bench;
  bench.Add("x", {1});
  static bool wanted[2];
  LOCAL_OP(FnTwoOutputs)
      .setForward([](const AttrMap&, OpIns, OpOuts out, OpResource&) {
        for (size_t i = 0; i < 2; ++i) wanted[i] = out[i].req() != OpReq::kNone;
        CHECK(out[1].raw_data() == nullptr);
        CHECK_FALSE(out[1].has_value());
        CHECK(ErrorOf([&] { out[1].data<float>(); }).code() == ErrorCode::kUninitialized);
      })
      .setInferShape(SameShape);
  bench.Create(OperatorDef("FnTwoOutputs", {"x"}, {"y", ""})).Run();
  CHECK((wanted[0] && !wanted[1]));
  auto& op = bench.Create(OperatorDef("FnTwoOutputs", {"x"}, {"y", "z"}));
  SetOutputReq(op, 1, OpReq::kNone);
  op.Run();
  CHECK((wanted[0] && !wanted[1]));
  CHECK(ErrorOf([&] { SetOutputReq(op, 2, OpReq::kNone); }).code() == ErrorCode::kOutOfRange);
}

TEST_CASE("mutated inputs are written to, and the schema knows them") {
  LOCAL_OP(FnMovingMean)
      .setForward([](const AttrMap&, OpIns in, OpOuts, OpResource&) {
        *in[1].data<float>() = 0.5f * (*in[1].data<float>() + *in[0].data<float>());
      })
      .setInferShape(SameShape)
      .setMutateInputs({1});
  LOCAL_OP(FnMutatesByAttr)
      .setForward([](const AttrMap&, OpIns, OpOuts, OpResource&) {})
      .setMutateInputs([](Map attrs, std::vector<int>& inputs) {
        inputs.push_back(std::stoi(attrs.at("which")));
        return 1;
      });
  Bench bench;
  bench.Add("x", {4});
  bench.Add("mean", {2});
  auto& op = bench.Create(OperatorDef("FnMovingMean", {"x", "mean"}, {"y"}));
  op.Run();
  CHECK(bench.Values("mean") == Floats{3});
  auto mutated = [](const char* name, Arguments args) {
    return OpRegistry::Global().GetSchema(name).MutatedInputs(OperatorDef(name, {}, {}, args));
  };
  CHECK(mutated("FnMovingMean", {}) == std::vector<int>{1});
  CHECK(mutated("FnMutatesByAttr", {{"which", 2}}) == std::vector<int>{2});
  CHECK(mutated("FnDouble", {}).empty());
  CHECK(Contains(ErrorOf([&] {
                   bench.Create(OperatorDef("FnMutatesByAttr", {"x"}, {}, {{"which", 2}}));
                 }).message(),
                 "mutateInputs of operator FnMutatesByAttr names input 2, but the node has 1"));
  // A copy would lose what is written.
  *bench.ws.GetTensor("mean") = Tensor::From<float>({2, 2}, {1, 2, 3, 4}).Slice(1, 0, 1);
  CHECK(Contains(ErrorOf([&] { op.Run(); }).message(), "because it is written to"));
}

TEST_CASE("parseAttrs decides the number of inputs and outputs") {
  LOCAL_OP(FnArity)
      .setForward([](const AttrMap&, OpIns, OpOuts, OpResource&) {})
      .setInferShape(SameShape)
      .setParseAttrs([](Map attrs, int* num_in, int* num_out) {
        if (!attrs.count("n")) {
          OPKIT_ERROR_MSG << "the attribute n is missing; " << attrs.size() << " given";
          return FAIL;
        }
        *num_in = std::stoi(attrs.at("n"));
        *num_out = 2;
        return SUCCESS;
      });
  Bench bench;
  bench.Add("x", {1});
  auto create = [&](int inputs, int outputs, Arguments args) {
    return ErrorOf([&] {
             OperatorDef def("FnArity", std::vector<std::string>(static_cast<size_t>(inputs), "x"),
                             {}, args);
             for (int i = 0; i < outputs; ++i) def.Output(StrCat("y", i));
             bench.Create(def);
           })
        .message();
  };
  CHECK(create(3, 2, {{"n", 3}}) == "no Error was thrown");
  CHECK(
      Contains(create(2, 2, {{"n", 3}}), "FnArity has 2 inputs, expected 3 with these attributes"));
  CHECK(Contains(create(3, 1, {{"n", 3}}),
                 "FnArity has 1 outputs, expected 2 with these attributes"));
  CHECK(create(3, 2, {}) ==
        "parseAttrs of operator FnArity failed: the attribute n is missing; 0 given");
  CHECK(create(3, 2, {{"n", "three"}}).find("parseAttrs of operator FnArity threw: stoi") == 0);
  // Invoke asks it for the number of outputs.
  CHECK(Invoke("FnArity", {bench.Add("x", {1})}, {{"n", 1}}).size() == 2);
}

TEST_CASE("inference fills in unknown shapes, in both directions") {
  LOCAL_OP(FnInfer)
      .setForward([](const AttrMap&, OpIns, OpOuts, OpResource&) {})
      .setInferType([](Map, std::vector<int>& in, std::vector<int>& out) {
        if (in[0] == -1) in[0] = out[0];
        out[0] = in[0];
        return 1;
      })
      .setInferShape([](Map, std::vector<std::vector<unsigned int>>& in,
                        std::vector<std::vector<unsigned int>>& out) {
        if (in[0].empty()) in[0] = out[0];
        if (in[1].empty() && !in[0].empty()) in[1] = {in[0].back()};
        if (in[0].size() != 2) {
          OPKIT_ERROR_MSG << "input 0 must have 2 axes, found " << in[0].size();
          return 0;
        }
        out[0] = in[0];
        return 1;
      });
  const OpSchema& schema = OpRegistry::Global().GetSchema("FnInfer");
  const OperatorDef def("FnInfer", {"x", "bias"}, {"y"});
  auto infer = [&](TensorInfo x, TensorInfo bias, TensorInfo y) {
    InferenceContext context(def, {std::move(x), std::move(bias)}, {std::move(y)});
    schema.Infer(context);
    return StrCat(context.input(0), " ", context.input(1), " ", context.output(0));
  };
  const TensorInfo unknown;
  const TensorInfo f32(DType::kFloat32, Shape{4, 5});
  CHECK(infer(f32, unknown, unknown) == "float32[4, 5] ?[5] float32[4, 5]");
  CHECK(infer(unknown, unknown, f32) == "float32[4, 5] ?[5] float32[4, 5]");
  CHECK(infer(TensorInfo(DType::kInt8, {Dim(), 5}), unknown, unknown) ==
        "int8[?, 5] ?[5] int8[?, 5]");
  CHECK(infer(unknown, unknown, unknown) == "?[rank unknown] ?[rank unknown] ?[rank unknown]");
  // While something is unknown a failure only means that nothing can be said yet …
  CHECK(infer(TensorInfo(DType::kInt8, Shape{5}), unknown, unknown) ==
        "int8[5] ?[rank unknown] int8[rank unknown]");
  // … and with everything known it is an error.
  const Error error = ErrorOf([&] {
    infer(TensorInfo(DType::kInt8, Shape{5}), TensorInfo(DType::kInt8, Shape{5}), unknown);
  });
  CHECK(error.message() ==
        "inferShape of operator FnInfer failed: input 0 must have 2 axes, found 1");
  // A contradiction with the node is an error as well.
  CHECK(ErrorOf([&] {
          infer(f32, unknown, TensorInfo(DType::kFloat32, Shape{4, 6}));
        }).code() == ErrorCode::kInvalidArgument);
}

TEST_CASE("a scalar stays a scalar through inferShape") {
  CHECK(Invoke("FnDouble", {Tensor::Scalar(4.f)})[0].shape() == Shape{});
  CHECK(Invoke("FnDouble", {Tensor::Scalar(4.f)})[0].data<float>()[0] == 8);
}

TEST_CASE("wrong answers of inference are errors that show them") {
  LOCAL_OP(FnWrongType)
      .setForward(CallBody)
      .setInferType([](const AttrMap& attrs, std::vector<int>&, std::vector<int>& out) {
        out[0] = attrs.Get<int>("type");
      })
      .setInferShape(SameShape);
  LOCAL_OP(FnWrongShape)
      .setForward(CallBody)
      .setInferShape([](const AttrMap& attrs, ShapeVectors&, ShapeVectors& out) {
        out.assign(attrs.Get<size_t>("count"), attrs.Get<std::vector<int64_t>>("shape"));
      });
  auto message = [](const char* op, Arguments args) {
    InvokeOptions options;
    options.num_outputs = 1;
    return ErrorOf([&] { Invoke(op, {Tensor::Scalar(1.f)}, args, options); }).message();
  };
  CHECK(message("FnWrongType", {{"type", 99}}) ==
        "inferType says 99 for output 0, which is no DType; -1 is unknown");
  CHECK(Contains(message("FnWrongType", {{"type", -1}}),
                 "the dtype of output 0 of operator FnWrongType is not known; add .setInferType"));
  CHECK(message("FnWrongShape", {{"count", 2}, {"shape", std::vector<int>{1}}}) ==
        "inferShape of operator FnWrongShape returned 2 outputs, but the node has 1");
  CHECK(message("FnWrongShape", {{"count", 1}, {"shape", std::vector<int>{-2}}}) ==
        "inferShape says extent -2 for output 0; -1 is unknown");
  CHECK(message("FnWrongShape", {{"count", 1}, {"shape", std::vector<int>{-1, 3}}}) ==
        "inferShape of operator FnWrongShape leaves output 0 unknown: [?, 3]");
}

TEST_CASE("without setInferShape the output tensors bring their shapes") {
  Bench bench;
  bench.Add("x", {1});
  g_body = [](OpIns, OpOuts out, OpResource&) { out[0].data<double>()[1] = 7; };
  auto& op = bench.Create(OperatorDef("FnBodyBare", {"x"}, {"y"}));
  const Error error = ErrorOf([&] { op.Run(); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(error.message() ==
        "operator FnBodyBare has no setInferShape, and output 0 'y' has no shape yet; add "
        ".setInferShape(f), or give the tensor its shape and dtype before the run");
  *bench.ws.GetTensor("y") = Tensor({2}, DType::kFloat64);
  op.Run();
  CHECK(bench.ws.GetTensor("y")->data<double>()[1] == 7);
}

namespace {

int g_fail_mode = 0;
REGISTER_OP(FnFails)
    .setForward([](const AttrMap&, OpIns, OpOuts, OpResource&) -> Status {
      if (g_fail_mode == 1) {
        OPKIT_ERROR_MSG << "x is " << 3 << ", not " << 2.5;
        return FAIL;
      }
      if (g_fail_mode == 2) return FAIL;
      if (g_fail_mode == 3) return Status::Failure("as a ", "status");
      if (g_fail_mode == 4) throw std::out_of_range("standard");
      if (g_fail_mode == 5) throw 5;
      if (g_fail_mode == 6) Throw(ErrorCode::kUnsupported, "our own");
      OPKIT_ERROR_MSG << "said, but it succeeds";
      return SUCCESS;
    })
    .setInferShape(SameShape);

}  // namespace

TEST_CASE("FAIL and exceptions become an Error with the operator and the text") {
  Bench bench;
  bench.Add("x", {1});
  auto& op = bench.Create(OperatorDef("FnFails", {"x"}, {"y"}).Name("third"));
  auto error = [&](int which) {
    g_fail_mode = which;
    return ErrorOf([&] { op.Run(); });
  };
  CHECK(error(1).message() == "forward of operator FnFails failed: x is 3, not 2.5");
  CHECK(error(1).code() == ErrorCode::kOperatorFailed);
  CHECK(Contains(error(1).what(), "in operator FnFails 'third' (x) -> (y)"));
  CHECK(Contains(error(1).what(), "input 0 'x': float32[1] on cpu"));
  error(0);  // its text is forgotten
  CHECK(Contains(
      error(2).message(),
      "forward of operator FnFails failed: it returned FAIL, which is 0 (SUCCESS is 1); say"));
  CHECK(error(3).message() == "forward of operator FnFails failed: as a status");
  CHECK(error(4).message() == "forward of operator FnFails threw: standard");
  CHECK_THROWS_AS(std::rethrow_exception(error(4).cause()), std::out_of_range);
  CHECK(Contains(error(5).message(), "FnFails threw something that is not a std::exception"));
  CHECK(error(6).code() == ErrorCode::kUnsupported);
  CHECK(error(6).message() == "our own");
  CHECK(Contains(error(6).what(), "in forward of operator FnFails"));
  CHECK(error(0).message() == "no Error was thrown");
  CHECK(detail::CurrentHostError().text.empty());
}

TEST_CASE("a text survives the operators that are called while it is written") {
  Bench bench;
  bench.Add("x", {1});
  g_body = [](OpIns in, OpOuts, OpResource& res) {
    OPKIT_ERROR_MSG << "outer";
    g_fail_mode = 2;
    const Error error =
        ErrorOf([&] { res.invoke("FnFails", {in[0]}, {res.temporary({1}, DType::kFloat32)}); });
    CHECK(Contains(error.message(),
                   "FnFails failed: it returned FAIL, which is 0 (SUCCESS is 1); say why"));
    CHECK(detail::CurrentHostError().text == "outer");
  };
  bench.Create(OperatorDef("FnBody", {"x"}, {"y"})).Run();
}

TEST_CASE("an input that is not there yet is named") {
  Bench bench;
  bench.ws.CreateTensor("x");
  auto& op = bench.Create(OperatorDef("FnDouble", {"x"}, {"y"}));
  const Error error = ErrorOf([&] { op.Run(); });
  CHECK(error.code() == ErrorCode::kUninitialized);
  CHECK(error.message() ==
        "input 0 'x' of operator FnDouble is read before anything was written to it");
}

TEST_CASE("an operator of functions is attributed as a custom operator") {
  Bench bench;
  bench.Add("x", {1});
  Invocation own, scoped, inner;
  g_body = [&](OpIns in, OpOuts, OpResource& res) {
    own = CurrentInvocation();
    {
      const OpScope scope = res.scope("part");
      scoped = CurrentInvocation();
      CHECK(std::string(scope.name()) == "part");
    }
    CHECK(CurrentInvocation() == own);
    g_body = [&](OpIns, OpOuts, OpResource&) { inner = CurrentInvocation(); };
    res.invoke("FnBody", {in[0]}, {res.temporary({1}, DType::kFloat32)});
  };
  bench.Create(OperatorDef("FnBody", {"x"}, {"y"})).Run();
  CHECK(own.kind == Invocation::Kind::kCustomOperator);
  CHECK(own.parent == 0);
  CHECK(scoped.kind == Invocation::Kind::kUserCode);
  CHECK(scoped.parent == own.id);
  CHECK(inner.kind == Invocation::Kind::kCustomOperator);  // wherever it runs
  CHECK(inner.parent == own.id);
}

TEST_CASE("backward is the operator <name>_backward and the gradient") {
  Bench bench;
  bench.Add("dy", {1, 10});
  bench.Add("x", {3, 4});
  bench.Add("y", {6, 8});
  bench.Create(OperatorDef("FnDouble_backward", {"dy", "x", "y"}, {"dx"})).Run();
  CHECK(bench.Values("dx") == Floats{2, 20});
  CHECK(Contains(ErrorOf([&] {
                   bench.Create(OperatorDef("FnDouble_backward", {"dy", "x"}, {"dx"}));
                 }).message(),
                 "FnDouble_backward has 2 inputs, expected 3 with these attributes"));

  CHECK(HasGradient("FnDouble"));
  CHECK_FALSE(HasGradient("FnBody"));
  const GradientOpsMeta gradient =
      GetGradientForOp(OperatorDef("FnDouble", {"x"}, {"y"}, {{"k", 1}}), {"dy"});
  REQUIRE(gradient.ops.size() == 1);
  CHECK(gradient.ops[0].type() == "FnDouble_backward");
  CHECK(gradient.ops[0].inputs() == std::vector<std::string>{"dy", "x", "y"});
  CHECK(gradient.ops[0].outputs() == std::vector<std::string>{gradient.g_input[0].dense});
  CHECK(gradient.ops[0].args().Get<int>("k") == 1);
  CHECK(gradient.ops[0].is_gradient_op());
  bench.Create(gradient.ops[0]).Run();
  CHECK(bench.Values(gradient.g_input[0].dense) == Floats{2, 20});

  // The shapes and dtypes of gradients are those of the values, whatever is known first.
  const OpSchema& schema = OpRegistry::Global().GetSchema("FnDouble_backward");
  const OperatorDef backward("FnDouble_backward", {"dy", "x", "y"}, {"dx"});
  InferenceContext context(
      backward, {{}, TensorInfo(DType::kInt8, Shape{2}), TensorInfo(DType::kInt8, Shape{3})});
  schema.Infer(context);
  CHECK(ToString(context.output(0)) == "int8[2]");
  CHECK(ToString(context.input(0)) == "int8[3]");
}

TEST_CASE("no gradient is made for inputs that are written to or left out") {
  LOCAL_OP(FnThreeInputs)
      .setForward([](const AttrMap&, OpIns, OpOuts, OpResource&) {})
      .setBackward([](const AttrMap&, OpIns, OpOuts, OpResource&) {})
      .setMutateInputs({2});
  const GradientOpsMeta gradient =
      GetGradientForOp(OperatorDef("FnThreeInputs", {"a", "", "state"}, {"y"}), {"dy"});
  REQUIRE(gradient.ops.size() == 1);
  CHECK(gradient.ops[0].inputs() == std::vector<std::string>{"dy", "a", "", "state", "y"});
  CHECK(gradient.ops[0].outputs() == std::vector<std::string>{gradient.g_input[0].dense, "", ""});
  CHECK(gradient.g_input[0].IsDense());
  CHECK(gradient.g_input[2].IsEmpty());
}

namespace {

class IdleState final : public StatefulOp {
 public:
  Status Run(FunctionPass, OpIns, OpOuts, OpResource&) override { return SUCCESS; }
};
void MakeIdle(const AttrMap&, std::unique_ptr<StatefulOp>* state) {
  *state = std::make_unique<IdleState>();
}

}  // namespace

TEST_CASE("noGradient: neither a backward operator nor a gradient, in either order") {
  LOCAL_OP(FnForwardOnly)
      .setCreateOpState(MakeIdle)
      .noGradient()
      .setParseAttrs(OneToOne)
      .setInferShape(SameShape);
  LOCAL_OP(FnForwardOnlyToo)
      .noGradient()
      .setCreateOpState(MakeIdle)
      .setParseAttrs(OneToOne)
      .setInferShape(SameShape);
  for (const std::string op : {"FnForwardOnly", "FnForwardOnlyToo"}) {
    CAPTURE(op);
    CHECK(OpRegistry::Global().FindSchema(op + "_backward") == nullptr);
    CHECK(OpRegistry::Global().KernelsOf(op + "_backward").empty());
    CHECK(GetGradientForOp(OperatorDef(op, {"x"}, {"y"}), {"dy"}).ops.empty());
    Bench bench;
    bench.Add("x", {0});
    bench.Create(OperatorDef(op, {"x"}, {"y"})).Run();
  }
  LOCAL_OP(FnContradicts).setForward(Double).setBackward(DoubleBackward).noGradient();
  LOCAL_OP(FnContradictsToo).setForward(Double).noGradient().setBackward(DoubleBackward);
  for (const char* op : {"FnContradicts", "FnContradictsToo"}) {
    Bench bench;
    bench.Add("x", {0});
    CHECK(Contains(ErrorOf([&] { bench.Create(OperatorDef(op, {"x"}, {"y"})); }).message(),
                   "setBackward(f) and noGradient() contradict"));
    OpRegistry::Global().Remove(op);
  }
}

TEST_CASE("wrong registrations are kept and reported, never thrown") {
  LOCAL_OP(FnWrongDevice).setForward(Double, "tpu");
  LOCAL_OP(FnTwice).setForward(Double).setForward(Double).setInferShape(SameShape);
  LOCAL_OP(FnTwicePlaces).setForward(Double).setInferShape(SameShape);
  LOCAL_OP(FnTwicePlaces).setForward(Double).setInferShape(SameShape);
  Bench bench;
  bench.Add("x", {0});
  auto message = [&](const char* op) {
    return ErrorOf([&] { bench.Create(OperatorDef(op, {"x"}, {"y"})); }).message();
  };
  CHECK(Contains(message("FnWrongDevice"), "setForward(f, \"tpu\"): no device type has this name"));
  CHECK(Contains(message("FnTwice"), "setForward(f, \"cpu\") is called twice"));
  CHECK(Contains(message("FnTwicePlaces"), "two schemas of operator FnTwicePlaces: at "));
  const std::string all = StrCat(CheckRegistrations());
  for (const char* op : {"REGISTER_OP(FnWrongDevice) at ", "REGISTER_OP(FnTwice) at ",
                         "two kernels of operator FnTwicePlaces"})
    CHECK(Contains(all, op));
  for (const char* op : {"FnWrongDevice", "FnTwice", "FnTwicePlaces"})
    OpRegistry::Global().Remove(op);
}

TEST_CASE("the same registration seen twice is one") {
  for (int seen = 0; seen < 2; ++seen) {
    LOCAL_OP(FnInHeader)
        .setForward(Double)
        .setBackward(DoubleBackward)
        .setInferShape(SameShape)
        .setForward(Double, "cpu_stream");
  }
  FunctionOpBuilder("FnInUnits", "units.hpp", 3).setForward(Double).setInferShape(SameShape);
  FunctionOpBuilder("FnInUnits", "units.hpp", 3).setForward(Double).setInferShape(SameShape);
  CHECK(OpRegistry::Global().KernelsOf("FnInUnits").size() == 1);
  CHECK_FALSE(Contains(StrCat(CheckRegistrations()), "FnInUnits"));
  CHECK(Invoke("FnInUnits", {Tensor::Scalar(2.f)}, {}, {{}, {}, 1})[0].data<float>()[0] == 4);
}

TEST_CASE("the error for a device without a backend in the program names the header to include") {
  LOCAL_OP(FnOnGpu).setForward(Double, "gpu").setInferShape(SameShape);
  CHECK(OpRegistry::Global().FindKernels("FnOnGpu", DeviceType::kCUDA).size() == 1);
  Workspace ws;
  ws.CreateTensor("x");
  const Error error = ErrorOf(
      [&] { CreateOperator(OperatorDef("FnOnGpu", {"x"}, {"y"}).Device(DeviceType::kCUDA), &ws); });
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(Contains(error.message(),
                 "function operators cannot run on cuda in this program: include "
                 "the header of its backend"));
}

TEST_CASE("on a CPU stream the functions are called when work is issued and put theirs on it") {
  LOCAL_OP(FnOnStream)
      .setForward(
          [](const AttrMap&, OpIns in, OpOuts out, OpResource& res) {
            CHECK(res.stream<detail::CPUStream>() ==
                  &detail::CPUStream::Get({DeviceType::kCPUStream, 0}, 2));
            const auto* x = in[0].data<float>();
            auto* y = out[0].data<float>();
            auto* half = res.alloc<float>(in[0].size());
            res.parallel_for(in[0].size(), [=](int64_t i) { half[i] = x[i] / 2; });
            res.launch([=, n = in[0].size()] {
              if (x[0] < 0) throw std::runtime_error("negative");
              for (int64_t i = 0; i < n; ++i) y[i] = half[i] + 1;
            });
          },
          "cpu_stream")
      .setInferShape(SameShape)
      .setParseAttrs(OneToOne);
  Bench bench;
  bench.Add("x", {2, 4});
  auto& op = bench.Create(OperatorDef("FnOnStream", {"x"}, {"y"}).Device(DeviceType::kCPUStream));
  const int64_t live = GetAllocator(DeviceType::kCPU).live_bytes();

  // The stream is held up until everything was issued.
  Event gate(Device{DeviceType::kCPU});
  gate.SetScheduled();
  op.WaitEvent(gate, 2);
  op.RunAsync(2);
  CHECK(op.event().Query() == EventStatus::kScheduled);
  CHECK(GetAllocator(DeviceType::kCPU).live_bytes() > live);
  gate.SetFinished();
  op.event().Finish();
  CHECK(bench.Values("y") == Floats{2, 3});
  op.SyncDeviceBarrierForObservers();
  const int64_t outputs = bench.ws.GetTensor("y")->capacity();
  CHECK(GetAllocator(DeviceType::kCPU).live_bytes() - live == outputs);

  // The sum is written after the work.
  SetOutputReq(op, 0, OpReq::kAdd);
  op.RunAsync(2);
  op.event().Finish();
  CHECK(bench.Values("y") == Floats{4, 6});
  SetOutputReq(op, 0, OpReq::kWrite);

  bench.ws.GetTensor("x")->mutable_data<float>()[0] = -1;
  op.RunAsync(2);
  const Error error = ErrorOf([&] { op.event().Finish(); });
  CHECK(error.message() == "work that operator FnOnStream launched threw: negative");
  CHECK(Contains(error.what(), "in operator FnOnStream (x) -> (y), on cpu_stream"));
  CHECK(op.event().Query() == EventStatus::kFailed);
}

}  // namespace function_operator_test
