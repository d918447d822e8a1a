// CheckOperator: every deliberately broken operator is caught by its own sentence and by no other;
// good ones are not blamed. check/ has the tests of its parts.
#include "opkit/op/check.hpp"

#include <algorithm>

#include "op/check/checked_ops.hpp"
#include "opkit/interop/doctest.hpp"
#include "opkit/op/check/check_data.hpp"

namespace check_test {
using namespace checked_ops;

namespace {

// ------------------------------------------------------------------------------ good operators

SCHEMA_OF_ONE(GoodDouble).Inplace({{0, 0}}).Input(0, "x").Output(0, "y");
REGISTER_CPU_OPERATOR(GoodDouble, LambdaOp<kDouble>);
REGISTER_CPU_OPERATOR_WITH_ENGINE(GoodDouble, FAST, LambdaOp<kDouble>);
constexpr auto kDoubleOnStream = [](auto& op) {
  const float* x = In(op);
  float* y = OutLike(op);
  op.ctx().Launch([x, y, n = Count(op)] {
    for (int64_t i = 0; i < n; ++i) y[i] = 2 * x[i];
  });
};
REGISTER_CPU_STREAM_OPERATOR(GoodDouble, LambdaOp<kDoubleOnStream, CPUStreamContext>);
class DoubleGradient : public GradientMakerBase {
 public:
  using GradientMakerBase::GradientMakerBase;
  std::vector<OperatorDef> GetGradientDefs() override {
    return SingleGradientDef("GoodDouble", "", {GO(0)}, {GI(0)});
  }
};
REGISTER_GRADIENT(GoodDouble, DoubleGradient);
OPKIT_TEST_OPERATOR("GoodDouble");

// Any dtype, any strides, its own way with empty tensors.
constexpr auto kCopy = [](auto& op) {
  const Tensor dense = op.Input(0).is_dense() ? op.Input(0) : op.Input(0).Contiguous();
  Tensor* y = op.Output(0, dense.shape(), dense.dtype());
  if (dense.nbytes())
    std::memcpy(y->raw_mutable_data(), dense.raw_data(), static_cast<size_t>(dense.nbytes()));
};
SCHEMA_OF_ONE(GoodCopy).Input(0, "x", "",
                              {DType::kBool, DType::kInt8, DType::kUInt64, DType::kFloat16,
                               DType::kFloat32, DType::kComplex64});
REGISTER_CPU_OPERATOR(GoodCopy, LambdaOp<kCopy>);
NO_GRADIENT(GoodCopy);
OPKIT_TEST_OPERATOR("GoodCopy");

// Inputs of different shapes and dtypes need TestInputs; two outputs, one of them an index.
constexpr auto kRows = [](auto& op) {
  const float* table = In(op);
  OPKIT_ENFORCE(op.Input(1).is_dense());
  const int64_t* rows = op.Input(1).template data<int64_t>();
  const int64_t n = op.Input(1).numel(), width = op.Input(0).dim(1);
  float* y = op.Output(0, Shape{n, width}, DType::kFloat32)->template mutable_data<float>();
  int64_t* most = op.Output(1, Shape{}, DType::kInt64)->template mutable_data<int64_t>();
  *most = 0;
  for (int64_t k = 0; k < n; ++k) {
    for (int64_t c = 0; c < width; ++c) y[k * width + c] = table[rows[k] * width + c];
    *most = rows[k] > *most ? rows[k] : *most;
  }
};
OPERATOR_SCHEMA(GoodRows)
    .NumInputs(2)
    .NumOutputs(2)
    .Infer([](InferenceContext& c) {
      if (!c.input_shape(0).has_rank() || !c.input_shape(1).has_rank()) return;
      c.SetOutput(0, c.input_dtype(0), {c.input_shape(1)[0], c.input_shape(0)[1]});
      c.SetOutput(1, DType::kInt64, Shape{});
    })
    .TestInputs([](DType, uint64_t seed) {
      return std::vector<Tensor>{
          opkit::RandomTensor({4, 3}, DType::kFloat32, seed),
          Tensor::From<int64_t>({3}, {2, 0, static_cast<int64_t>(seed % 4)})};
    });
REGISTER_CPU_OPERATOR(GoodRows, LambdaOp<kRows>);

constexpr auto kConstant = [](auto& op) {
  op.Output(0, Shape{2}, DType::kFloat32)->template mutable_data<float>()[0] = 1;
  op.Output(0)->template mutable_data<float>()[1] = 2;
};
OPERATOR_SCHEMA(GoodConstant)
    .NumInputs(0)
    .NumOutputs(1)
    .ScalarType(DType::kFloat32)
    .Infer([](InferenceContext& c) { c.SetOutput(0, DType::kFloat32, Shape{2}); });
REGISTER_CPU_OPERATOR(GoodConstant, LambdaOp<kConstant>);

// Completes its event from elsewhere.
class LateOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool HasAsyncPart() const override { return true; }
  bool RunOnDevice() override {
    const float* x = In(*this);
    float* y = OutLike(*this);
    const int64_t n = Count(*this);
    opkit::ThreadPool::Global().Submit([=, done = event()]() mutable {
      for (int64_t i = 0; i < n; ++i) y[i] = x[i] + 1;
      done.SetFinished();
    });
    return true;
  }
};
// Wrong on a stream alone: each run of an operator adds what the ones before left.
constexpr auto kAddMemory = [](auto& op) {
  const float* x = In(op);
  float* y = OutLike(op);
  op.ctx().Launch([x, y, n = Count(op), memory = ++op.memory] {
    for (int64_t i = 0; i < n; ++i) y[i] = 2 * x[i] + static_cast<float>(memory);
  });
};
SCHEMA_OF_ONE(BadOnStream);
REGISTER_CPU_OPERATOR(BadOnStream, LambdaOp<kDouble>);
REGISTER_CPU_STREAM_OPERATOR(BadOnStream, LambdaOp<kAddMemory, CPUStreamContext>);
NO_GRADIENT(BadOnStream);

SCHEMA_OF_ONE(GoodLate);
REGISTER_CPU_OPERATOR(GoodLate, LateOp);

}  // namespace

TEST_CASE("good operators are not blamed") {
  Expect("GoodRows", {});
  Expect("GoodConstant", {});
  Expect("GoodLate", {});
}

TEST_CASE("the report is readable") {
  const CheckReport report = CheckOperator("GoodDouble");
  CHECK(ToString(report) ==
        opkit::StrCat("operator GoodDouble: nothing wrong in ", report.runs, " runs"));
  CHECK(report.runs > 100);
  CHECK(report.notes.empty());
}

// ---------------------------------------------------------------------------- broken operators

namespace {

constexpr auto kTransposed = [](auto& op) {
  const float* x = In(op);
  std::vector<int64_t> dims = op.Input(0).shape().vec();
  const std::vector<int64_t> reversed(dims.rbegin(), dims.rend());
  float* y = op.Output(0, Shape(reversed), DType::kFloat32)->template mutable_data<float>();
  for (int64_t i = 0; i < Count(op); ++i) y[i] = x[i];
};
SCHEMA_OF_ONE(BadShape).Output(0, "z");
REGISTER_CPU_OPERATOR(BadShape, LambdaOp<kTransposed>);

constexpr auto kToDouble = [](auto& op) {
  const float* x = In(op);
  double* y = op.Output(0, op.Input(0).shape(), DType::kFloat64)->template mutable_data<double>();
  for (int64_t i = 0; i < Count(op); ++i) y[i] = static_cast<double>(x[i]);
};
SCHEMA_OF_ONE(BadDType);
REGISTER_CPU_OPERATOR(BadDType, LambdaOp<kToDouble>);

template <bool kNeedsNumbers, bool kNeedsRank>
void InferFlat(InferenceContext& c) {
  const auto& shape = c.input_shape(0);
  if (kNeedsNumbers) OPKIT_ENFORCE(shape.is_known(), "");
  if (kNeedsRank) OPKIT_ENFORCE(shape.has_rank(), "");
  c.SetOutput(0, c.input_dtype(0), Shape{shape.ToShape().numel()});
}
constexpr auto kFlatten = [](auto& op) {
  const float* x = In(op);
  float* y = op.Output(0, Shape{Count(op)}, DType::kFloat32)->template mutable_data<float>();
  for (int64_t i = 0; i < Count(op); ++i) y[i] = x[i];
};
OPERATOR_SCHEMA(BadSymbolic).NumInputs(1).NumOutputs(1).Infer(InferFlat<true, true>);
REGISTER_CPU_OPERATOR(BadSymbolic, LambdaOp<kFlatten>);
OPERATOR_SCHEMA(BadUnknownRank).NumInputs(1).NumOutputs(1).Infer(InferFlat<false, true>);
REGISTER_CPU_OPERATOR(BadUnknownRank, LambdaOp<kFlatten>);
OPERATOR_SCHEMA(AsksForExtents).NumInputs(1).NumOutputs(1).Infer(InferFlat<false, false>);
REGISTER_CPU_OPERATOR(AsksForExtents, LambdaOp<kFlatten>);

constexpr auto kCounts = [](auto& op) {
  static int64_t runs = 0;
  float* y = OutLike(op);
  ++runs;
  for (int64_t i = 0; i < Count(op); ++i) y[i] = static_cast<float>(runs);
};
SCHEMA_OF_ONE(BadRandom);
REGISTER_CPU_OPERATOR(BadRandom, LambdaOp<kCounts>);

SCHEMA_OF_ONE(GoodRandom).Stateful();
REGISTER_CPU_OPERATOR(GoodRandom, LambdaOp<kCounts>);

// mean = (mean + x) / 2; y = mean
constexpr auto kMovesMean = [](auto& op) {
  const float* x = In(op);
  OPKIT_ENFORCE(op.Input(1).is_dense());
  auto* mean = static_cast<float*>(op.Input(1).raw_mutable_data());
  for (int64_t i = 0; i < Count(op); ++i) mean[i] = (mean[i] + x[i]) / 2;
  float* y = OutLike(op);
  for (int64_t i = 0; i < Count(op); ++i) y[i] = mean[i];
};
OPERATOR_SCHEMA(GoodMutates).NumInputs(2).NumOutputs(1).IdenticalTypeAndShape().MutatesInputs({1});
REGISTER_CPU_OPERATOR(GoodMutates, LambdaOp<kMovesMean>);

constexpr auto kRemembers = [](auto& op) {
  const float* x = In(op);
  float* y = OutLike(op);
  for (int64_t i = 0; i < Count(op); ++i) y[i] = x[i] + static_cast<float>(op.memory);
  ++op.memory;
};
SCHEMA_OF_ONE(BadState);
REGISTER_CPU_OPERATOR(BadState, LambdaOp<kRemembers>);

constexpr auto kCachesSize = [](auto& op) {
  const float* x = In(op);
  float* y = OutLike(op);
  if (op.memory == 0) op.memory = Count(op);
  for (int64_t i = 0; i < Count(op); ++i) y[i] = i < op.memory ? x[i] : 0;
};
SCHEMA_OF_ONE(BadCachedSize);
REGISTER_CPU_OPERATOR(BadCachedSize, LambdaOp<kCachesSize>);

constexpr auto kReverse = [](auto& op) {
  const float* x = In(op);
  float* y = OutLike(op);
  for (int64_t i = 0; i < Count(op); ++i) y[i] = x[Count(op) - 1 - i];
};
SCHEMA_OF_ONE(BadInplace).Inplace({{0, 0}}).Input(0, "x").Output(0, "y");
REGISTER_CPU_OPERATOR(BadInplace, LambdaOp<kReverse>);

constexpr auto kKeepsMemory = [](auto& op) {
  const float* x = In(op);
  Tensor* y = op.Output(0);
  y->Resize(op.Input(0).shape(), DType::kFloat32);  // and with it, perhaps, the input's memory
  for (int64_t i = 0; i < Count(op); ++i) y->template mutable_data<float>()[i] = 2 * x[i];
};
SCHEMA_OF_ONE(BadAlias).Input(0, "x").Output(0, "y");
REGISTER_CPU_OPERATOR(BadAlias, LambdaOp<kKeepsMemory>);

constexpr auto kComparesPointers = [](auto& op) {
  const float *a = In(op, 0), *b = In(op, 1);
  float* y = OutLike(op);
  for (int64_t i = 0; i < Count(op); ++i) y[i] = a == b ? 0 : a[i] + b[i];
};
OPERATOR_SCHEMA(BadInputs)
    .NumInputs(2)
    .NumOutputs(1)
    .IdenticalTypeAndShapeOfInput(0)
    .Input(0, "a")
    .Input(1, "b");
REGISTER_CPU_OPERATOR(BadInputs, LambdaOp<kComparesPointers>);

constexpr auto kIgnoresStrides = [](auto& op) {
  const float* x = op.Input(0).template data<float>();
  float* y = OutLike(op);
  for (int64_t i = 0; i < Count(op); ++i) y[i] = x[i];
};
SCHEMA_OF_ONE(BadStrides).Input(0, "x");
class IgnoresStridesOp final : public LambdaOp<kIgnoresStrides> {
 public:
  using LambdaOp::LambdaOp;
  bool AcceptsStrides() const override { return true; }
};
REGISTER_CPU_OPERATOR(BadStrides, IgnoresStridesOp);
SCHEMA_OF_ONE(GoodDenseByDefault).Input(0, "x");
REGISTER_CPU_OPERATOR(GoodDenseByDefault, LambdaOp<kIgnoresStrides>);

constexpr auto kSumInRanges = [](auto& op) {
  const float* x = In(op);
  float* y = OutLike(op);
  opkit::ParallelForRange(Count(op), opkit::kAutoGrain, [=](int64_t begin, int64_t end) {
    float sum = 0;
    for (int64_t i = begin; i < end; ++i) y[i] = sum += x[i];
  });
};
SCHEMA_OF_ONE(BadThreads);
REGISTER_CPU_OPERATOR(BadThreads, LambdaOp<kSumInRanges>);

SCHEMA_OF_ONE(BadStream);
REGISTER_CPU_OPERATOR(BadStream, LambdaOp<kDouble>);
constexpr auto kReadsEarly = [](auto& op) {
  const float* x = In(op);
  float* y = OutLike(op);
  std::vector<float> values(x, x + Count(op));
  op.ctx().Launch([y, values = std::move(values)] {
    for (size_t i = 0; i < values.size(); ++i) y[i] = 2 * values[i];
  });
};
REGISTER_CPU_STREAM_OPERATOR(BadStream, LambdaOp<kReadsEarly, CPUStreamContext>);

SCHEMA_OF_ONE(BadClaim).Input(0, "x", "", {DType::kFloat32, DType::kFloat64});
REGISTER_CPU_OPERATOR(BadClaim, LambdaOp<kDouble>);

constexpr auto kNotEmpty = [](auto& op) {
  OPKIT_ENFORCE(op.Input(0).numel() > 0);
  kDouble(op);
};
SCHEMA_OF_ONE(BadEmpty);
REGISTER_CPU_OPERATOR(BadEmpty, LambdaOp<kNotEmpty>);

SCHEMA_OF_ONE(BadBackend);
REGISTER_CPU_OPERATOR(BadBackend, LambdaOp<kDouble>);
constexpr auto kTriple = [](auto& op) {
  const float* x = In(op);
  float* y = OutLike(op);
  for (int64_t i = 0; i < Count(op); ++i) y[i] = 3 * x[i];
};
REGISTER_CPU_OPERATOR_WITH_ENGINE(BadBackend, FAST, LambdaOp<kTriple>);

SCHEMA_OF_ONE(BadGradient).Input(0, "x");
REGISTER_CPU_OPERATOR(BadGradient, LambdaOp<kTriple>);
REGISTER_GRADIENT(BadGradient, DoubleGradient);

SCHEMA_OF_ONE(BadNoKernel);

}  // namespace

TEST_CASE("a kernel whose shape or dtype is not the inferred one is blamed") {
  Expect("BadShape",
         {"output 0 'z': inference says float32[2, 3], the kernel wrote float32[3, 2]"});
  Expect("BadDType",
         {"output 0 'output0': inference says float32[2, 3], the kernel wrote float64[2, 3]"});
  Expect("BadSymbolic", {"inference fails on symbolic extents: expected shape.is_known()"});
  Expect("BadUnknownRank",
         {"inference fails on shapes of unknown rank: expected shape.has_rank()"});
  CheckReport asks = CheckOperator("AsksForExtents");
  CHECK_MESSAGE(asks.ok(), asks);
  Expect("BadClaim", {"its schema claims float64, but it refuses that: tensor float64[2, 3]"});
  Expect("BadEmpty",
         {"it refuses inputs that its inference accepts: expected op.Input(0).numel() > 0 "});
}

TEST_CASE("results that depend on earlier runs are blamed, unless declared") {
  Expect("BadRandom",
         {"run by a second operator of the same node it gives another result, output 0"});
  CheckOptions random;
  random.compare.deterministic = false;
  Expect("BadRandom", {}, random);
  Expect("GoodRandom", {});  // as its schema says
  CHECK(CheckOperator("GoodRandom").notes[0].find("two runs may differ") != std::string::npos);
  Expect("GoodMutates", {});
  Expect("BadState", {"in its second run on the same inputs it gives another result, output 0"});
  CHECK(CheckOperator("BadState")
            .findings[0]
            .find("; if it is meant to, its schema says Stateful() (stateful() of "
                  "REGISTER_OP)  [") != std::string::npos);
  Expect("BadCachedSize", {"in a run on float32[2, 3] after one on these inputs it gives another "
                           "result, output 0"});
}

TEST_CASE("results that depend on shared memory or on strides are blamed") {
  Expect("BadInplace", {"in place, with output 0 'y' in the blob of input 0 'x', it gives another "
                        "result, output 0"});
  Expect("BadAlias", {"when output 0 'y' holds the memory of input 0 'x' it overwrites that input, "
                      "though the schema does not allow it in place"});
  Expect("BadInputs", {"when input 0 'a' and input 1 'b' share memory it gives another result"});
  Expect("BadStrides", {"it reads the strided input 0 'x' as if it were dense, output 0"});
  Expect("GoodDenseByDefault", {});
  CheckOptions dense;
  dense.compare.strided = false;
  Expect("BadStrides", {}, dense);
}

TEST_CASE("results that depend on threads or on when a stream runs are blamed") {
  Expect("BadThreads", {"on 4 threads it gives another result, output 0"});
  Expect("BadStream", {"it reads its inputs when it is issued, not when its stream has come to it: "
                       "given them late, output 0"});
}

TEST_CASE("where only a stream's kernel is wrong, captures are asked about, once") {
  const CheckReport report = CheckOperator("BadOnStream");
  INFO(ToString(report));
  REQUIRE(!report.findings.empty());
  const std::string hint = "; is the body of ParallelFor or Launch a [&]?";
  const auto has_hint = [&](const std::string& one) { return one.find(hint) != std::string::npos; };
  CHECK(std::ranges::count_if(report.findings, has_hint) == 1);
  CHECK(has_hint(report.findings[0]));
}

TEST_CASE("a kernel that differs from another, or a wrong gradient, is blamed") {
  Expect("BadBackend", {"it gives another result than kernel cpu/reference, output 0"});
  CHECK(CheckOperator("BadBackend").findings[0].find("[cpu/FAST; float32[2, 3]]") !=
        std::string::npos);
  Expect("BadGradient", {"the gradient of input 0 'x' is wrong: element [0, 0] is "});
  Expect("BadNoKernel", {"it has no kernel that the host can run"});
}

// The failure depends on the value of an attribute.
class ValuesOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    const auto mode = Arg<std::string>("mode", "right");
    if (mode == "refused") opkit::Throw(opkit::ErrorCode::kInvalidArgument, "not these inputs");
    if (mode == "flat") {
      float* y = Output(0, Shape{Count(*this)}, DType::kFloat32)->mutable_data<float>();
      for (int64_t i = 0; i < Count(*this); ++i) y[i] = In(*this)[i];
      return true;
    }
    if (mode == "crashes") std::abort();
    kDouble(*this);
    return true;
  }
};
SCHEMA_OF_ONE(BadValue).Arg("mode", "", {"right", "flat", "right as well", "refused"});
REGISTER_CPU_OPERATOR(BadValue, ValuesOp);
SCHEMA_OF_ONE(BadCrash).Arg("mode", "", {"right", "crashes"});
REGISTER_CPU_OPERATOR(BadCrash, ValuesOp);
SCHEMA_OF_ONE(RequiredValue)
    .RequiredArg("mode", "", {"right", "flat"})
    .Arg("other", "", {"a", "b"});
REGISTER_CPU_OPERATOR(RequiredValue, ValuesOp);

TEST_CASE("every value of a string attribute is checked, and named where it goes wrong") {
  Expect("BadValue", {"output 0 'output0': inference says float32[2, 3], the kernel wrote "
                      "float32[6]  [cpu/reference; float32[2, 3]; mode=flat]"});
  const CheckReport report = CheckOperator("BadValue");
  CHECK(std::ranges::count(report.notes,
                           "kernel cpu/reference with mode=refused (float32), which refuses the "
                           "inputs that the others take: not these inputs") == 1);
  // A value that the caller gives is the one that is checked.
  CheckOptions given;
  given.args = {{"mode", "right"}};
  CHECK(CheckOperator("BadValue", given).ok());
  given.args = {{"mode", "flat"}};
  const CheckReport flat = CheckOperator("BadValue", given);
  CHECK(flat.findings.at(0).ends_with("[cpu/reference; float32[2, 3]]"));
  Expect("RequiredValue", {"float32[2, 3]; mode=flat]"});
  if (CheckOptions().run.in_child) Expect("BadCrash", {"; mode=crashes]"});
}

}  // namespace check_test
