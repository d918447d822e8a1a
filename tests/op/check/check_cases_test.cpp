// The nodes and inputs that CheckOperator makes where none are given.
#include "opkit/op/check/check_cases.hpp"

#include "op/check/checked_ops.hpp"
#include "opkit/op/function/function_operator.hpp"

namespace check_cases_test {
using namespace checked_ops;

namespace {

using opkit::detail::CheckTarget;
using opkit::detail::MakeCheckDef;

SCHEMA_OF_ONE(CasesDouble).Inplace({{0, 0}}).Input(0, "x").Output(0, "x");
REGISTER_CPU_OPERATOR(CasesDouble, LambdaOp<kDouble>);

// No inference: what it refuses is left out.
constexpr auto kTrace = [](auto& op) {
  OPKIT_ENFORCE(op.Input(0).rank() == 2 && op.Input(0).dim(0) == op.Input(0).dim(1));
  const float* x = In(op);
  float* y = op.Output(0, Shape{}, DType::kFloat32)->template mutable_data<float>();
  *y = 0;
  for (int64_t i = 0; i < op.Input(0).dim(0); ++i) *y += x[i * op.Input(0).dim(0) + i];
};
OPERATOR_SCHEMA(CasesTrace).NumInputs(1).NumOutputs(1);
REGISTER_CPU_OPERATOR(CasesTrace, LambdaOp<kTrace>);

// Has no inputs, which only its function says.
REGISTER_OP(CasesNoInputs)
    .setParseAttrs([](const opkit::AttrMap&, int* num_in, int* num_out) {
      *num_in = 0;
      *num_out = 1;
    })
    .setInferType([](const opkit::AttrMap&, std::vector<DType>&, std::vector<DType>& out) {
      out[0] = DType::kFloat32;
    })
    .setInferShape([](const opkit::AttrMap&, opkit::ShapeVectors&, opkit::ShapeVectors& out) {
      out[0] = {2};
    })
    .setForward([](const opkit::AttrMap&, std::span<const opkit::OpTensor>,
                   std::span<opkit::OpTensor> out,
                   opkit::OpResource&) { out[0].data<float>()[0] = out[0].data<float>()[1] = 7; });

// Must run in place; takes an argument; has no other input.
constexpr auto kAccumulate = [](auto& op) {
  OPKIT_ENFORCE(op.HasArgument("step"));
  OPKIT_ENFORCE(op.Input(0).is_dense());
  float* sum = op.Output(0)->template mutable_data<float>();
  for (int64_t i = 0; i < Count(op); ++i) sum[i] += 1;
};
OPERATOR_SCHEMA(CasesAccumulate)
    .NumInputs(1)
    .NumOutputs(1)
    .EnforceInplace({{0, 0}})
    .IdenticalTypeAndShape()
    .RequiredArg<int>("step", "of each run");
REGISTER_CPU_OPERATOR(CasesAccumulate, LambdaOp<kAccumulate>);

constexpr auto kTrusts = [](auto& op) {
  if (op.Input(0).rank() != 2) std::abort();
  kDouble(op);
};
OPERATOR_SCHEMA(CasesTrusts).NumInputs(1).NumOutputs(1).Infer([](InferenceContext& c) {
  OPKIT_ENFORCE(c.input_shape(0).rank() == 2);
  c.SetOutput(0, c.input_dtype(0), c.input_shape(0));
});
REGISTER_CPU_OPERATOR(CasesTrusts, LambdaOp<kTrusts>);
NO_GRADIENT(CasesTrusts);

OPERATOR_SCHEMA(CasesTyped)
    .NumInputs(2, 3)
    .NumOutputs(1)
    .Input(0, "rows", "", {DType::kInt64})
    .Input(1, "values", "", {DType::kFloat32, DType::kFloat64});

// Takes bytes alone, says its inference; of the numbers of 16 bits alone; of bytes beside indices.
template <DType first, DType last>
void OnlyThese(InferenceContext& c) {
  OPKIT_ENFORCE(c.input_dtype(0) == first && c.input_dtype(c.num_inputs() - 1) == last);
  c.SetOutput(0, first, c.input_shape(0));
}
constexpr auto kCopies = [](auto& op) { op.Output(0)->CopyFrom(op.Input(0)); };
OPERATOR_SCHEMA(CasesBytes)
    .NumInputs(1)
    .NumOutputs(1)
    .Infer(OnlyThese<DType::kUInt8, DType::kUInt8>);
REGISTER_CPU_OPERATOR(CasesBytes, LambdaOp<kCopies>);
NO_GRADIENT(CasesBytes);
OPERATOR_SCHEMA(CasesShorts)
    .NumInputs(1)
    .NumOutputs(1)
    .Infer(OnlyThese<DType::kInt16, DType::kInt16>);
OPERATOR_SCHEMA(CasesMixedBytes)
    .NumInputs(2)
    .NumOutputs(1)
    .Infer(OnlyThese<DType::kUInt8, DType::kInt64>);
REGISTER_CPU_OPERATOR(CasesMixedBytes, LambdaOp<kCopies>);
NO_GRADIENT(CasesMixedBytes);
constexpr auto kRefuses = [](auto&) { OPKIT_ENFORCE(false, "never"); };
OPERATOR_SCHEMA(CasesNone).NumInputs(1).NumOutputs(1).Infer([](InferenceContext&) {
  OPKIT_ENFORCE(false, "no dtype will do");
});
REGISTER_CPU_OPERATOR(CasesNone, LambdaOp<kRefuses>);

const opkit::OpSchema& Schema(const char* op) { return opkit::OpRegistry::Global().GetSchema(op); }
std::vector<DType> DTypesOf(const char* op) {
  return CheckTarget{Schema(op), MakeCheckDef(Schema(op), {}), {}}.DTypes();
}

}  // namespace

TEST_CASE("the smallest node that the schema accepts is made, with a name for each value") {
  CHECK(ToString(MakeCheckDef(Schema("CasesDouble"), {})) == "CasesDouble (x) -> (x_out)");
  CHECK(ToString(MakeCheckDef(Schema("CasesTyped"), {})) ==
        "CasesTyped (rows, values) -> (output0)");
  CheckOptions options;
  options.num_inputs = 3;
  CHECK(ToString(MakeCheckDef(Schema("CasesTyped"), options)) ==
        "CasesTyped (rows, values, input2) -> (output0)");
  options.args = {{"step", 1}};
  options.num_inputs = -1;
  const OperatorDef in_place = MakeCheckDef(Schema("CasesAccumulate"), options);
  CHECK(in_place.inputs() == in_place.outputs());
}

TEST_CASE("an operator whose inference accepts some dtypes is checked with these") {
  CHECK(DTypesOf("CasesBytes") == std::vector<DType>{DType::kUInt8});
  CHECK(DTypesOf("CasesShorts") == std::vector<DType>{DType::kInt16});
  CHECK(DTypesOf("CasesMixedBytes") == std::vector<DType>{DType::kUInt8});
  CHECK(DTypesOf("CasesDouble") == std::vector<DType>{DType::kFloat32});  // it takes every dtype
  for (const char* op : {"CasesBytes", "CasesMixedBytes"}) {
    const CheckReport report = CheckOperator(op);
    INFO(ToString(report));
    CHECK(report.ok());
    CHECK(report.runs > 10);
  }
}

TEST_CASE("if no inputs are found, the report names the option that gives them") {
  Expect("CasesNone", {"; give CheckOperator inputs, CheckOptions::dtypes or input_shapes, or the "
                       "schema TestInputs"});
}

TEST_CASE("each input gets a dtype that it claims, on shapes from empty to odd") {
  const opkit::OpSchema& schema = Schema("CasesTyped");
  CheckTarget typed{schema, MakeCheckDef(schema, {}), {}};
  CHECK(typed.DTypes() == std::vector<DType>{DType::kFloat32, DType::kFloat64});
  CHECK(DTypesOf("CasesTrace") == std::vector<DType>{DType::kFloat32});
  const auto cases = typed.Cases(DType::kFloat64);
  CHECK(cases[0].Describe() == "int64[2, 3], float64[2, 3]");
  int empty = 0;
  for (const auto& one : cases) {
    CHECK(one.guessed);
    CHECK(one.inputs[0].shape() == one.inputs[1].shape());
    empty += one.inputs[0].numel() == 0;
  }
  CHECK(empty == 3);
  typed.options.dtypes = {DType::kInt8};
  CHECK(typed.DTypes() == typed.options.dtypes);
}

TEST_CASE("an operator without inference is run on the inputs that it accepts") {
  Expect("CasesTrace", {});
  CheckOptions options;
  options.args = {{"step", 1}};
  Expect("CasesAccumulate", {}, options);
}

TEST_CASE("inputs that inference refuses are not tried, so that a kernel may rely on it") {
  const opkit::OpSchema& schema = Schema("CasesTrusts");
  const CheckTarget trusts{schema, MakeCheckDef(schema, {}), {}};
  for (const auto& one : trusts.Cases(DType::kFloat32)) CHECK(one.inputs[0].rank() == 2);
  Expect("CasesTrusts", {});
}

TEST_CASE("an operator whose attributes alone say that it has no inputs gets none") {
  CHECK(MakeCheckDef(Schema("CasesNoInputs"), {}).inputs().empty());
  Expect("CasesNoInputs", {});
}

TEST_CASE("a node and inputs may be given") {
  const Tensor x = Tensor::From<float>({2, 2}, {1, 2, 3, 4});
  Expect(CheckOperator(OperatorDef("CasesTrace", {"x"}, {"y"}), {x}), {});
  Expect(CheckOperator(OperatorDef("CasesDouble", {"x"}, {"x"}), {x}), {});
  const CheckReport refused =
      CheckOperator(OperatorDef("CasesTrace", {"x"}, {"y"}), {Tensor::From<float>({1, 2}, {1, 2})});
  Expect(refused, {"it refuses its test inputs: expected op.Input(0).rank() == 2"});
  CHECK_THROWS_WITH_AS(CheckOperator(OperatorDef("CasesTrace", {"x"}, {"y"}), {}),
                       "CheckOperator of CasesTrace (x) -> (y) needs 1 inputs, found 0",
                       opkit::Error);
}

TEST_CASE("the report names the properties that could not be checked") {
  const CheckReport trace = CheckOperator("CasesTrace");
  CHECK(trace.notes ==
        std::vector<std::string>{"shapes and dtypes, because the schema infers none",
                                 "work on a stream, because no kernel is registered for cpu_stream",
                                 "its gradient, none is registered"});
  CHECK_THROWS_WITH_AS(CheckOperator("CasesAccumulate"),
                       "CheckOperator finds no node of CasesAccumulate: CasesAccumulate needs the "
                       "argument 'step' (of each run); set CheckOptions::args, num_inputs or "
                       "num_outputs, or give it a node and inputs",
                       opkit::Error);
  CHECK_THROWS_AS(CheckOperator("CasesDuoble"), opkit::Error);
}

}  // namespace check_cases_test
