// The numeric gradient checker: right gradients pass in every floating-point dtype, wrong ones are
// named with input, element and both numbers.
#include "opkit/op/gradient/gradient_check.hpp"

#include <doctest/doctest.h>

#include "opkit/op/check/check_data.hpp"
#include "support/error_of.hpp"
#include "support/pointwise_op.hpp"

namespace gradient_check_test {
namespace {

using opkit::Arguments;
using opkit::CheckGradient;
using opkit::CPUContext;
using opkit::DispatchDType;
using opkit::DType;
using opkit::float16;
using opkit::GradientCheckOptions;
using opkit::GradientCheckResult;
using opkit::GradientMakerBase;
using opkit::Operator;
using opkit::OperatorDef;
using opkit::Shape;
using opkit::Tensor;
using opkit::Workspace;

using Defs = std::vector<OperatorDef>;

Tensor Random(Shape shape, DType dtype, uint64_t seed) {
  return opkit::RandomTensor(shape, dtype, seed);
}

constexpr auto kMul = [](double a, double b, double k, int) { return k * a * b; };
constexpr auto kCube = [](double a, double, double, int) { return a * a * a; };
constexpr auto kRelu = [](double a, double, double, int) { return a > 0 ? a : 0; };

OPERATOR_SCHEMA(CheckedMul).NumInputs(2).NumOutputs(1).Arg("k", "").Inplace({{0, 0}, {1, 0}});
REGISTER_CPU_OPERATOR(CheckedMul, PointwiseOp<kMul>);
OPERATOR_SCHEMA(CheckedCube).NumInputs(1).NumOutputs(1).Arg("k", "");
REGISTER_CPU_OPERATOR(CheckedCube, PointwiseOp<kCube>);
OPERATOR_SCHEMA(CheckedRelu).NumInputs(1).NumOutputs(1).Arg("k", "");
REGISTER_CPU_OPERATOR(CheckedRelu, PointwiseOp<kRelu>);

class MulGradient : public GradientMakerBase {
 public:
  using GradientMakerBase::GradientMakerBase;
  Defs GetGradientDefs() override {
    return {OperatorDef("CheckedMul", {GO(0), I(1)}, {GI(0)}),
            OperatorDef("CheckedMul", {GO(0), I(0)}, {GI(1)})};
  }
};
REGISTER_GRADIENT(CheckedMul, MulGradient);

class CubeGradient : public GradientMakerBase {  // 3 x^2 dy
 public:
  using GradientMakerBase::GradientMakerBase;
  Defs GetGradientDefs() override {
    const std::string square = Temporary("square");
    return {OperatorDef("CheckedMul", {I(0), I(0)}, {square}, {{"k", 3.0}}),
            OperatorDef("CheckedMul", {GO(0), square}, {GI(0)})};
  }
};
REGISTER_GRADIENT(CheckedCube, CubeGradient);

OPERATOR_SCHEMA(CheckedForgotten).NumInputs(2).NumOutputs(1).Arg("k", "").IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(CheckedForgotten, PointwiseOp<kMul>);
class ForgottenGradient : public GradientMakerBase {
 public:
  using GradientMakerBase::GradientMakerBase;
  Defs GetGradientDefs() override { return {}; }
};
REGISTER_GRADIENT(CheckedForgotten, ForgottenGradient);

class ReluGradient : public GradientMakerBase {
 public:
  using GradientMakerBase::GradientMakerBase;
  Defs GetGradientDefs() override {
    const std::string step = Temporary("step");
    return {OperatorDef("CheckedStep", {I(0)}, {step}),
            OperatorDef("CheckedMul", {GO(0), step}, {GI(0)})};
  }
};
constexpr auto kStep = [](double a, double, double, int) { return a > 0 ? 1.0 : 0.0; };
OPERATOR_SCHEMA(CheckedStep).NumInputs(1).NumOutputs(1).Arg("k", "");
REGISTER_CPU_OPERATOR(CheckedStep, PointwiseOp<kStep>);
REGISTER_GRADIENT(CheckedRelu, ReluGradient);

// Doubles the gradient of the first input and forgets that of the second.
OPERATOR_SCHEMA(CheckedWrong).NumInputs(2).NumOutputs(1).Arg("k", "");
REGISTER_CPU_OPERATOR(CheckedWrong, PointwiseOp<kMul>);
class WrongGradient : public GradientMakerBase {
 public:
  using GradientMakerBase::GradientMakerBase;
  bool CopyArguments() const override { return false; }
  Defs GetGradientDefs() override {
    return {OperatorDef("CheckedMul", {GO(0), I(1)}, {GI(0)}, {{"k", 2.0}})};
  }
};
REGISTER_GRADIENT(CheckedWrong, WrongGradient);

// The sum of the inputs of all runs of the operator.
class SumsOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    double* y = Output(0, x.shape(), DType::kFloat64)->mutable_data<double>();
    sums_.resize(static_cast<size_t>(x.numel()));
    for (size_t i = 0; i < sums_.size(); ++i) y[i] = sums_[i] += x.data<double>()[i];
    return true;
  }

 private:
  std::vector<double> sums_;
};
OPERATOR_SCHEMA(CheckedSums).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape().Stateful();
REGISTER_CPU_OPERATOR(CheckedSums, SumsOp);
class SumsGradient : public GradientMakerBase {
 public:
  using GradientMakerBase::GradientMakerBase;
  Defs GetGradientDefs() override {
    SetDense(0, GO(0));
    return {};
  }
};
REGISTER_GRADIENT(CheckedSums, SumsGradient);

// y = x^2, and the slope 2 x, which the gradient reads.
class KeepsOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    double* y = Output(0, x.shape(), DType::kFloat64)->mutable_data<double>();
    double* slope = Output(1, x.shape(), DType::kFloat64)->mutable_data<double>();
    for (int64_t i = 0; i < x.numel(); ++i) {
      const double value = x.data<double>()[i];
      y[i] = value * value;
      slope[i] = 2 * value;
    }
    return true;
  }
};
OPERATOR_SCHEMA(CheckedKeeps).NumInputs(1).NumOutputs(2).IdenticalTypeAndShapeOfInput(0);
REGISTER_CPU_OPERATOR(CheckedKeeps, KeepsOp);
class KeepsGradient : public GradientMakerBase {
 public:
  using GradientMakerBase::GradientMakerBase;
  Defs GetGradientDefs() override { return {OperatorDef("CheckedMul", {GO(0), O(1)}, {GI(0)})}; }
};
REGISTER_GRADIENT(CheckedKeeps, KeepsGradient);

OPERATOR_SCHEMA(CheckedShape).NumInputs(1).NumOutputs(1).Arg("k", "");
REGISTER_CPU_OPERATOR(CheckedShape, PointwiseOp<kMul>);
class ShapeGradient : public GradientMakerBase {
 public:
  using GradientMakerBase::GradientMakerBase;
  Defs GetGradientDefs() override { return SingleGradientDef("CheckedSum", "", {GO(0)}, {GI(0)}); }
};
REGISTER_GRADIENT(CheckedShape, ShapeGradient);

class SumOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    const float* x = Input(0).data<float>();
    float* sum = Output(0, Shape{}, DType::kFloat32)->mutable_data<float>();
    *sum = 0;
    for (int64_t i = 0; i < Input(0).numel(); ++i) *sum += x[i];
    return true;
  }
};
OPERATOR_SCHEMA(CheckedSum).NumInputs(1).NumOutputs(1);
REGISTER_CPU_OPERATOR(CheckedSum, SumOp);

// Rows of a table, with a sparse gradient: the rows' indices and dy.
class RowsOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    const Tensor& table = Input(0);
    const int64_t n = Input(1).numel(), width = table.dim(1);
    float* out = Output(0, Shape{n, width}, DType::kFloat32)->mutable_data<float>();
    for (int64_t k = 0; k < n; ++k)
      std::memcpy(out + k * width, table.data<float>() + Input(1).data<int64_t>()[k] * width,
                  static_cast<size_t>(width) * sizeof(float));
    return true;
  }
};
OPERATOR_SCHEMA(CheckedRows).NumInputs(2).NumOutputs(1);
REGISTER_CPU_OPERATOR(CheckedRows, RowsOp);
class RowsGradient : public GradientMakerBase {
 public:
  using GradientMakerBase::GradientMakerBase;
  Defs GetGradientDefs() override {
    SetSparse(0, I(1), GO(0));
    return {};
  }
};
REGISTER_GRADIENT(CheckedRows, RowsGradient);
OPERATOR_SCHEMA(CheckedRowsWrong).NumInputs(2).NumOutputs(1);
REGISTER_CPU_OPERATOR(CheckedRowsWrong, RowsOp);
class WrongRowsGradient : public GradientMakerBase {
 public:
  using GradientMakerBase::GradientMakerBase;
  Defs GetGradientDefs() override {
    SetSparse(0, "nine", GO(0));
    return {OperatorDef("CheckedNine", {I(1)}, {"nine"})};
  }
};
REGISTER_GRADIENT(CheckedRowsWrong, WrongRowsGradient);
class NineOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    int64_t* out = Output(0, Input(0).shape(), DType::kInt64)->mutable_data<int64_t>();
    for (int64_t i = 0; i < Input(0).numel(); ++i) out[i] = 9;
    return true;
  }
};
OPERATOR_SCHEMA(CheckedNine).NumInputs(1).NumOutputs(1);
REGISTER_CPU_OPERATOR(CheckedNine, NineOp);

}  // namespace

TEST_CASE("right gradients pass in every floating-point dtype") {
  for (DType dtype : {DType::kFloat16, DType::kFloat32, DType::kFloat64}) {
    CAPTURE(opkit::ToString(dtype));
    const GradientCheckResult mul =
        CheckGradient(OperatorDef("CheckedMul", {"a", "b"}, {"y"}, {{"k", 0.5}}),
                      {Random({2, 3}, dtype, 1), Random({2, 3}, dtype, 2)});
    CHECK_MESSAGE(mul.ok(), ToString(mul));
    CHECK(mul.elements_checked == 12);
    const GradientCheckResult cube =
        CheckGradient(OperatorDef("CheckedCube", {"x"}, {"y"}), {Random({7}, dtype, 3)});
    CHECK_MESSAGE(cube.ok(), ToString(cube));
  }
}

TEST_CASE("a value read twice is tested against the sum of its gradients") {
  const Tensor x = Random({5}, DType::kFloat64, 4);
  const GradientCheckResult result =
      CheckGradient(OperatorDef("CheckedMul", {"x", "x"}, {"y"}), {x, x});
  CHECK_MESSAGE(result.ok(), ToString(result));
  CHECK(result.elements_checked == 5);
}

TEST_CASE("a kink near an element does not make a right gradient wrong") {
  const Tensor x = Tensor::From<float>({4}, {0.005f, -0.004f, 1.f, -1.f});
  const GradientCheckResult result = CheckGradient(OperatorDef("CheckedRelu", {"x"}, {"y"}), {x});
  CHECK_MESSAGE(result.ok(), ToString(result));
}

TEST_CASE("a wrong gradient is named with input, element and both numbers") {
  const Tensor a = Tensor::From<double>({2}, {1, 2}), b = Tensor::From<double>({2}, {0, 3});
  const GradientCheckResult result =
      CheckGradient(OperatorDef("CheckedWrong", {"a", "b"}, {"y"}), {a, b});
  REQUIRE(result.findings.size() == 1);
  REQUIRE(result.mismatches.size() == 1);  // times 0 it is right
  CHECK(result.mismatches[0].input == 0);
  CHECK(result.mismatches[0].element == 1);
  CHECK(result.mismatches[0].analytic == doctest::Approx(2 * result.mismatches[0].numeric));
  CHECK(Contains(result.findings[0], "the gradient of input 0 'a' is wrong: element [1] is "));
  CHECK(Contains(result.findings[0], ", but the numeric gradient is "));
  CHECK(ToString(result).starts_with(result.findings[0]));
}

TEST_CASE("a requested gradient must be there") {
  const Tensor a = Random({2}, DType::kFloat64, 1), zero = Tensor::From<double>({2}, {0, 0});
  GradientCheckOptions options;
  options.inputs = {1};
  const GradientCheckResult result =
      CheckGradient(OperatorDef("CheckedWrong", {"a", "b"}, {"y"}), {a, zero}, options);
  REQUIRE(result.findings.size() == 1);
  CHECK(result.findings[0] ==
        "the gradient of input 1 'b' was asked for, but the gradient maker gives none");
}

TEST_CASE("a gradient of another shape is found") {
  const GradientCheckResult result = CheckGradient(OperatorDef("CheckedShape", {"x"}, {"y"}),
                                                   {Random({2, 3}, DType::kFloat32, 1)});
  REQUIRE(result.findings.size() == 1);
  CHECK(result.findings[0] ==
        "the gradient of input 0 'x' is float32[], but the input is float32[2, 3]");
}

TEST_CASE("sparse gradients are added up by index") {
  const Tensor table = Random({4, 3}, DType::kFloat32, 1);
  const Tensor rows = Tensor::From<int64_t>({3}, {2, 0, 2});
  const GradientCheckResult right =
      CheckGradient(OperatorDef("CheckedRows", {"table", "rows"}, {"y"}), {table, rows});
  CHECK_MESSAGE(right.ok(), ToString(right));
  CHECK(right.elements_checked == 12);
  const GradientCheckResult wrong =
      CheckGradient(OperatorDef("CheckedRowsWrong", {"table", "rows"}, {"y"}), {table, rows});
  REQUIRE(wrong.findings.size() == 1);
  CHECK(wrong.findings[0] ==
        "the gradient of input 0 'table' has index 9, but the input has 4 slices");
}

TEST_CASE("inputs must fit the node, and only some elements may be tested") {
  CHECK_THROWS_WITH_AS(CheckGradient(OperatorDef("CheckedCube", {"x"}, {"y"}), {}),
                       "CheckGradient of CheckedCube (x) -> (y) needs 1 inputs, found 0",
                       opkit::Error);
  GradientCheckOptions options;
  options.max_elements = 10;
  const GradientCheckResult result = CheckGradient(OperatorDef("CheckedCube", {"x"}, {"y"}),
                                                   {Random({100}, DType::kFloat64, 5)}, options);
  CHECK(result.ok());
  CHECK(result.elements_checked <= 10);
  CHECK(result.elements_checked >= 5);
}

TEST_CASE("an input with an effect but no gradient is a note, unless its gradient is requested") {
  const OperatorDef def("CheckedWrong", {"a", "b"}, {"c"}, {{"k", 2.0}});
  const Tensor a = Random({3}, DType::kFloat64, 1), b = Random({3}, DType::kFloat64, 2);
  const GradientCheckResult result = CheckGradient(def, {a, b});
  CHECK_MESSAGE(result.ok(), ToString(result));
  CHECK(result.notes == std::vector<std::string>{"the gradient of input 1 'b', which changes the "
                                                 "outputs: its maker gives none"});
  CHECK(ToString(result).ends_with("\n(not checked: " + result.notes[0] + ")"));
  GradientCheckOptions both;
  both.inputs = {0, 1};
  CHECK(CheckGradient(def, {a, b}, both).findings.size() == 1);
  CHECK(CheckGradient(OperatorDef("CheckedMul", {"a", "b"}, {"c"}), {a, b}).notes.empty());
}

TEST_CASE("a maker without any gradient gets notes of the inputs that matter") {
  const OperatorDef def("CheckedForgotten", {"a", "b"}, {"c"}, {{"k", 2.0}});
  const Tensor a = Random({3}, DType::kFloat64, 1), b = Random({3}, DType::kFloat64, 2);
  const GradientCheckResult result = CheckGradient(def, {a, b});
  CHECK(result.ok());
  CHECK(result.elements_checked == 0);
  CHECK(result.notes ==
        std::vector<std::string>{
            "output 0 'c', whose gradient the maker reads nowhere: none flows through it",
            "the gradient of input 0 'a', which changes the outputs: its maker gives none",
            "the gradient of input 1 'b', which changes the outputs: its maker gives none"});
  CHECK(
      ToString(result).starts_with("no element of a gradient was checked\n(not checked: output "));
}

TEST_CASE("an output that forward keeps for backward is no part of the loss") {
  const Tensor x = Random({3}, DType::kFloat64, 1);
  const GradientCheckResult result =
      CheckGradient(OperatorDef("CheckedKeeps", {"x"}, {"y", "slope"}), {x});
  CHECK_MESSAGE(result.ok(), ToString(result));
  CHECK(result.elements_checked == 3);
  CHECK(result.notes == std::vector<std::string>{"output 1 'slope', whose gradient the maker reads "
                                                 "nowhere: none flows through it"});
}

TEST_CASE("an operator that keeps state is made anew for each run") {
  const Tensor x = Random({3}, DType::kFloat64, 1);
  const GradientCheckResult result = CheckGradient(OperatorDef("CheckedSums", {"x"}, {"y"}), {x});
  CHECK_MESSAGE(result.ok(), ToString(result));
  CHECK(result.elements_checked == 3);
}

}  // namespace gradient_check_test
