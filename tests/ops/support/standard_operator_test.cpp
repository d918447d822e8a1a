// StandardOperator: what inference finds for the inputs of a run.
#include "opkit/ops/support/standard_operator.hpp"

#include "opkit/graph/executor.hpp"
#include "opkit/ops/concat.hpp"
#include "opkit/ops/expand.hpp"
#include "opkit/ops/generators.hpp"
#include "opkit/ops/math/reduce.hpp"
#include "opkit/ops/nn/resize.hpp"
#include "opkit/ops/one_hot.hpp"
#include "opkit/ops/pad.hpp"
#include "opkit/ops/reshape.hpp"
#include "opkit/ops/slice.hpp"
#include "opkit/ops/topk.hpp"
#include "ops/data_movement.hpp"

namespace standard_operator_test {
using namespace opkit_tests;

namespace {

// Knows its input, as a model's own operator may, to have the shape of an attribute: inference then
// knows the output of the node before, whatever data of a run decides it.
class KnowsItsInputOp : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    *Output(0) = Input(0);
    return true;
  }
};
OPKIT_OPERATOR_SCHEMA(KnowsItsInput)
    .NumInputs(1)
    .NumOutputs(1)
    .RequiredArg<Ints>("shape", "of the input")
    .Infer([](InferenceContext& c) {
      const SymbolicShape shape = Shape(c.args().Get<Ints>("shape"));
      c.SetInput(0, DType::kUndefined, shape);
      c.SetOutput(0, c.input_dtype(0), shape);
    });
OPKIT_REGISTER_CPU_OPERATOR(KnowsItsInput, KnowsItsInputOp);
OPKIT_NO_GRADIENT(KnowsItsInput);

// Runs a node on inputs whose data is known in the run alone, in a plan that knows the shape of its
// first output.
Tensor RunKnowing(const Shape& planned, const OperatorDef& node,
                  const std::vector<Tensor>& inputs) {
  Graph g;
  std::vector<NamedTensor> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (node.inputs()[i].empty()) continue;
    g.AddInput(node.inputs()[i], inputs[i].dtype(), inputs[i].shape());
    values.push_back({node.inputs()[i], inputs[i]});
  }
  g.AddNode(node);
  g.AddNode(OperatorDef("KnowsItsInput", {node.outputs()[0]}, {"known"},
                        {{"shape", Ints(planned.begin(), planned.end())}}));
  g.AddOutput("known");
  return Executor(Compile(g)).Run(values)[0];
}

TEST_CASE("data of a run that contradicts the planned shape is an Error, in every operator") {
  struct Case {
    OperatorDef node;
    std::vector<Tensor> inputs;
    Shape found, other;
  };
  const Tensor x = Counting({4, 2});
  const auto f = [](float value) { return Tensor::Scalar(value); };
  const Case cases[] = {
      {OperatorDef("ConstantOfShape", {"s"}, {"y"}), {List({2, 3})}, {2, 3}, {3, 2}},
      {OperatorDef("Expand", {"x", "s"}, {"y"}), {x, List({3, 1, 2})}, {3, 4, 2}, {1, 4, 2}},
      {OperatorDef("OneHot", {"x", "d", "v"}, {"y"}),
       {List({1, 0}), Tensor::Scalar<int64_t>(3), Counting({2})},
       {2, 3},
       {2, 4}},
      {OperatorDef("Pad", {"x", "p"}, {"y"}), {x, List({0, 1, 0, 0})}, {4, 3}, {5, 2}},
      {OperatorDef("Range", {"a", "b", "d"}, {"y"}), {f(0), f(6), f(2)}, {3}, {6}},
      {OperatorDef("ReduceSum", {"x", "a"}, {"y"}, {{"keepdims", 0}}), {x, List({1})}, {4}, {2}},
      {OperatorDef("Reshape", {"x", "s"}, {"y"}), {x, List({2, 4})}, {2, 4}, {8, 1}},
      {OperatorDef("Resize", {"x", "", "", "s"}, {"y"}), {x, x, x, List({2, 2})}, {2, 2}, {8, 2}},
      {OperatorDef("Slice", {"x", "b", "e"}, {"y"}),
       {x, List({1, 0}), List({4, 1})},
       {3, 1},
       {1, 1}},
      {OperatorDef("Split", {"x", "s"}, {"y", "z"}), {x, List({1, 3})}, {1, 2}, {3, 2}},
      {OperatorDef("Squeeze", {"x", "a"}, {"y"}), {Counting({1, 2, 1}), List({0})}, {2, 1}, {1, 2}},
      {OperatorDef("Tile", {"x", "r"}, {"y"}), {x, List({2, 1})}, {8, 2}, {4, 2}},
      {OperatorDef("TopK", {"x", "k"}, {"y", "i"}), {x, List({1})}, {4, 1}, {4, 2}},
      {OperatorDef("Unsqueeze", {"x", "a"}, {"y"}), {x, List({0})}, {1, 4, 2}, {4, 1, 2}},
  };
  for (const Case& one : cases) {
    CAPTURE(ToString(one.node));
    CHECK(RunKnowing(one.found, one.node, one.inputs).shape() == one.found);
    const Error error = ErrorOf([&] { RunKnowing(one.other, one.node, one.inputs); });
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    CHECK(Contains(error.message(), "but inference finds"));
  }
}

TEST_CASE("a shape that a run gives to Expand must fit the input, known before or not") {
  Graph g;
  g.AddInput("x", DType::kFloat32, {4, 2});
  g.AddInput("shape", DType::kInt64, {2});
  g.AddNode(OperatorDef("Expand", {"x", "shape"}, {"y"}));
  g.AddOutput("y");
  Executor executor(Compile(g));
  const Tensor x = Counting({4, 2});
  CHECK(executor.Run({{"x", x}, {"shape", List({1, 2})}})[0].shape() == Shape{4, 2});
  CHECK(Contains(ErrorOf([&] {
                   executor.Run({{"x", x}, {"shape", List({3, 5})}});
                 }).message(),
                 "shapes [4, 2] and [3, 5] cannot be broadcast together"));
  CHECK(executor.Run({{"x", x}, {"shape", List({4, 1})}})[0].shape() == Shape{4, 2});
}

}  // namespace
}  // namespace standard_operator_test
