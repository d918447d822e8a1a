// Declared inputs and outputs: their dtypes hold wherever types are inferred, and behind a run.
#include "opkit/op/schema/value_schema.hpp"

#include <doctest/doctest.h>

#include "opkit/graph/plan.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/op/registration.hpp"
#include "support/error_of.hpp"

namespace value_schema_test {
namespace {

using namespace opkit;

// Counts the elements, as float64, or what `wrong` asks for.
class CountOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    const bool wrong = GetSingleArgument("wrong", false);
    Output(0, {}, wrong ? DType::kFloat32 : DType::kFloat64)->raw_mutable_data();
    return true;
  }
};
OPERATOR_SCHEMA(ValueCount)
    .NumInputs(1)
    .NumOutputs(1)
    .Arg<bool>("wrong", "", false)
    .Input(0, "x", "", {DType::kFloat32, DType::kInt64})
    .Output(0, "count", "", {DType::kFloat64});
REGISTER_CPU_OPERATOR(ValueCount, CountOp);

OPERATOR_SCHEMA(ValueWrongRule)
    .NumInputs(1)
    .NumOutputs(1)
    .Output(0, "y", "", {DType::kInt32, DType::kInt64})
    .IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(ValueWrongRule, CountOp);

Graph GraphOf(const char* op, DType dtype) {
  Graph graph;
  graph.AddInput("X", dtype, {Sym("N")});
  graph.AddNode(OperatorDef(op, {"X"}, {"Y"}));
  graph.AddOutput("Y");
  return graph;
}

}  // namespace

TEST_CASE("a value allows the declared dtypes, or any if it declares none") {
  const detail::ValueSchema any{"x", "", {}}, floats{"x", "", {DType::kFloat32, DType::kFloat64}};
  CHECK(any.Allows(DType::kBool));
  CHECK(floats.Allows(DType::kFloat64));
  CHECK(floats.Allows(DType::kUndefined));
  CHECK_FALSE(floats.Allows(DType::kInt32));
}

TEST_CASE("an input of another dtype is refused before the operator runs") {
  const std::string why = "input 0 'x' is int32[1], expected one of [float32, int64]";
  const Error invoked = ErrorOf([] { Invoke("ValueCount", {Tensor::From<int32_t>({1}, {1})}); });
  CHECK(invoked.code() == ErrorCode::kTypeMismatch);
  CHECK(Contains(invoked.what(), why));
  CHECK(Contains(ErrorOf([] { Compile(GraphOf("ValueCount", DType::kInt32)); }).what(),
                 "input 0 'x' is int32[N], expected"));
  CHECK(Invoke("ValueCount", {Tensor::From<int64_t>({1}, {1})})[0].dtype() == DType::kFloat64);
}

TEST_CASE("an output has the dtype that is declared, without an inference function too") {
  CHECK(Compile(GraphOf("ValueCount", DType::kInt64)).type("Y").dtype == DType::kFloat64);
  const Error error = ErrorOf([] {
    Invoke("ValueCount", {Tensor::From<float>({1}, {1})}, {{"wrong", true}});
  });
  CHECK(Contains(error.what(), "float32[]"));
  CHECK(Contains(error.what(), "where its inference says float64"));
  CHECK(Contains(ErrorOf([] { Compile(GraphOf("ValueWrongRule", DType::kBool)); }).what(),
                 "output 0 'y' is bool[N], expected one of [int32, int64]"));
}

}  // namespace value_schema_test
