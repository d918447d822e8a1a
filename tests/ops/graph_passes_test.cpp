// The passes that know what standard operators compute: graphs before and after, and the same
// outputs of both.
#include <doctest/doctest.h>

#include <map>

#include "opkit/graph/executor.hpp"
#include "opkit/graph/passes.hpp"
#include "opkit/graph/passes/batch_normalization.hpp"
#include "opkit/graph/passes/hard_swish.hpp"
#include "support/compare_backends.hpp"
#include "support/tensors.hpp"

namespace graph_passes_test { namespace {

using namespace opkit;
using Nodes = std::vector<OperatorDef>;

// x is [2, 6, 5, 5], w makes 4 channels of it.
Graph Begin(const Nodes& nodes, const std::vector<std::string>& outputs = {"y"}) {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2, 6, 5, 5});
  graph.AddConstant("w", Random({4, 6, 3, 3}, 1));
  graph.AddConstant("b", Random(Shape{4}, 2));
  graph.AddConstant("scale", Random(Shape{4}, 3));
  graph.AddConstant("shift", Random(Shape{4}, 4));
  graph.AddConstant("mean", Random(Shape{4}, 5));
  graph.AddConstant("variance", Vector({0.5f, 2, 0.1f, 1}));
  graph.AddConstant("each", Random({4, 1, 1}, 6));
  graph.AddConstant("number", Tensor::Scalar(3.f));
  graph.AddConstant("six", Tensor::Scalar(6.f));
  graph.AddConstant("sixth", Tensor::Scalar(1 / 6.f));
  graph.AddConstant("zero", Tensor::Scalar(0.f));
  graph.AddConstant("row", Random({1, 4, 1, 5}, 7));
  for (const OperatorDef& node : nodes) graph.AddNode(node);
  for (const std::string& output : outputs) graph.AddOutput(output);
  return graph;
}
OperatorDef Conv(const std::string& to, const std::string& from = "x") {
  return OperatorDef("Conv", {from, "w"}, {to}, {{"pads", std::vector<int64_t>(4, 1)}});
}
OperatorDef Normalization(const std::string& from, const std::string& to) {
  return OperatorDef("BatchNormalization", {from, "scale", "shift", "mean", "variance"}, {to},
                     {{"epsilon", 1e-3f}});
}
OperatorDef Binary(const char* op, const char* a, const char* b, const char* to) {
  return OperatorDef(op, {a, b}, {to});
}
std::string Operators(const Graph& graph) {
  std::string text;
  for (const OperatorDef& node : graph.nodes())
    text += (text.empty() ? "" : " ") + node.type() + ">" + node.outputs()[0];
  return text;
}
// Without passes.
std::map<std::string, Tensor> Run(const Graph& graph) {
  const PassList none;
  Executor executor(Compile(graph, {.threads = 1, .passes = &none}));
  std::map<std::string, Tensor> outputs;
  for (const auto& [name, value] : executor.Run({{"x", Random({2, 6, 5, 5}, 9)}}))
    outputs.emplace(name, value);
  return outputs;
}
void CheckSame(const Graph& before, const Graph& after) {
  Check(after);
  CHECK(after.outputs() == before.outputs());
  const auto expected = Run(before), found = Run(after);
  for (const auto& [name, value] : expected) CheckClose(found.at(name), value);
}
void CheckFolds(const Nodes& nodes, const std::string& after,
                const std::vector<std::string>& outputs = {"y"}) {
  const Graph graph = Begin(nodes, outputs);
  const Graph folded = FoldBatchNormalization(graph);
  CHECK(Operators(folded) == after);
  CheckSame(graph, folded);
  CHECK(Operators(FoldBatchNormalization(folded)) == after);
}

TEST_CASE("BatchNormalization and arithmetic by channel go into the convolution before them") {
  CheckFolds({Conv("h"), Normalization("h", "y")}, "Conv>y");
  CheckFolds({Conv("h").Input("b"), Normalization("h", "y")}, "Conv>y");
  CheckFolds({Conv("h"), Normalization("h", "n"), Binary("Mul", "n", "each", "m"),
              Binary("Add", "number", "m", "a"), OperatorDef("Relu", {"a"}, {"y"})},
             "Conv>a Relu>y");
  CheckFolds({Conv("h"), Binary("Sub", "h", "each", "s"), Binary("Div", "s", "number", "d"),
              Binary("Sub", "number", "d", "y")},
             "Conv>y");
  const Graph folded = FoldBatchNormalization(Begin({Conv("h"), Normalization("h", "y")}));
  CHECK_FALSE(folded.IsConstant("w"));  // nothing reads it any more
  CHECK_FALSE(folded.IsConstant("mean"));
  CHECK(folded.IsConstant("y@W"));
  // Two convolutions that share a weight get one folded weight each.
  CheckFolds(
      {Conv("h"), Conv("g").Input("b"), Normalization("h", "m"), Binary("Add", "m", "g", "y")},
      "Conv>m Conv>g Add>y");
}

TEST_CASE("Without a convolution arithmetic goes into the BatchNormalization before it") {
  CheckFolds({Conv("h"), OperatorDef("Relu", {"h"}, {"r"}), Normalization("r", "n"),
              Binary("Mul", "n", "each", "m"), Binary("Add", "m", "number", "y")},
             "Conv>h Relu>r BatchNormalization>y");
}

TEST_CASE("A value that another node reads is not folded away") {
  CheckFolds({Conv("h"), Normalization("h", "y")}, "Conv>h BatchNormalization>y", {"y", "h"});
  CheckFolds({Conv("h"), Normalization("h", "n"), Binary("Add", "n", "h", "y")},
             "Conv>h BatchNormalization>n Add>y");
  CheckFolds({Conv("h"), Binary("Mul", "h", "h", "y")}, "Conv>h Mul>y");
  CheckFolds({Conv("h"), Binary("Mul", "h", "row", "y")}, "Conv>h Mul>y");     // one a column
  CheckFolds({Conv("h"), Binary("Div", "h", "zero", "y")}, "Conv>h Div>y");    // not finite
  CheckFolds({Conv("h"), Binary("Div", "number", "h", "y")}, "Conv>h Div>y");  // not linear
  CheckFolds({Conv("h").Name("first"), Normalization("h", "n"),
              OperatorDef("Relu", {"n"}, {"y"}).ControlInput("first")},
             "Conv>h BatchNormalization>n Relu>y");
  CheckFolds({Conv("h"), Normalization("h", "y").Backends("reference", kRequired)},
             "Conv>h BatchNormalization>y");
  Graph training = Begin({Conv("h"), Normalization("h", "y").Arg("training_mode", 1)});
  CHECK(Operators(FoldBatchNormalization(training)) == "Conv>h BatchNormalization>y");
  Graph given = Begin({});  // weights that the caller gives
  given.RemoveConstant("w");
  given.AddInput("w", DType::kFloat32, {4, 6, 3, 3});
  given.AddNode(Conv("h"));
  given.AddNode(Normalization("h", "y"));
  CHECK(Operators(FoldBatchNormalization(given)) == "Conv>h BatchNormalization>y");
}

TEST_CASE("A product that float32 does not hold is not folded away") {
  // (x * w) * k, where w * k is too small or too large for a float.
  const auto fold = [](float w, float k, const char* op) {
    Graph graph;
    graph.AddInput("x", DType::kFloat32, {1, 1, 1, 1});
    graph.AddConstant("w", Tensor::From<float>({1, 1, 1, 1}, {w}));
    graph.AddConstant("k", Vector({k}));
    graph.AddNode(OperatorDef("Conv", {"x", "w"}, {"h"}));
    graph.AddNode(OperatorDef(op, {"h", "k"}, {"y"}));
    graph.AddOutput("y");
    return Operators(FoldBatchNormalization(graph));
  };
  CHECK(fold(1e-25f, 1e-25f, "Mul") == "Conv>h Mul>y");
  CHECK(fold(1e25f, 1e25f, "Mul") == "Conv>h Mul>y");
  CHECK(fold(1e25f, 1e-25f, "Div") == "Conv>h Div>y");
  CHECK(fold(1e-12f, 1e-25f, "Mul") == "Conv>y");
  CHECK(fold(1e-25f, 0, "Mul") == "Conv>y");
}

Nodes HardSwish(const char* last) {
  return {Binary("Add", "x", "number", "a"), OperatorDef("Clip", {"a", "zero", "six"}, {"c"}),
          Binary("Mul", "c", "x", "m"), Binary(last, "m", *last == 'D' ? "six" : "sixth", "y")};
}
void CheckMerges(const Nodes& nodes, const std::string& after,
                 const std::vector<std::string>& outputs = {"y"}) {
  const Graph graph = Begin(nodes, outputs);
  const Graph merged = MergeHardSwish(graph);
  CHECK(Operators(merged) == after);
  CheckSame(graph, merged);
}

TEST_CASE("HardSwish is found in the ways that models spell it") {
  CheckMerges(HardSwish("Div"), "HardSwish>y");
  CheckMerges(HardSwish("Mul"), "HardSwish>y");
  const OperatorDef gate("HardSigmoid", {"x"}, {"g"}, {{"alpha", 1 / 6.f}});
  CheckMerges({gate, Binary("Mul", "x", "g", "y")}, "HardSwish>y");
  CHECK_FALSE(MergeHardSwish(Begin(HardSwish("Div"))).IsConstant("six"));
}

TEST_CASE("A HardSwish has the shape of its input") {
  // A scalar with a constant of shape [1] is of shape [1], and an open rank may be a scalar's.
  const auto merge = [](SymbolicShape x, Shape three, Shape sixth) {
    Graph graph;
    graph.AddInput("x", DType::kFloat32, std::move(x));
    graph.AddConstant("number", Tensor::From<float>(three, {3}));
    graph.AddConstant("zero", Tensor::Scalar(0.f));
    graph.AddConstant("six", Tensor::Scalar(6.f));
    graph.AddConstant("sixth", Tensor::From<float>(sixth, {1 / 6.f}));
    for (const OperatorDef& node : HardSwish("Mul")) graph.AddNode(node);
    graph.AddOutput("y");
    return Operators(MergeHardSwish(graph)) == "HardSwish>y";
  };
  CHECK(merge(Shape{}, {}, {}));
  CHECK_FALSE(merge(Shape{}, {1}, {}));
  CHECK_FALSE(merge(Shape{}, {}, {1}));
  CHECK(merge(Shape{2}, {1}, {1}));
  CHECK(merge({}, {}, {}));
  CHECK_FALSE(merge({}, {1}, {}));
}

TEST_CASE("A pattern that is almost a HardSwish stays") {
  CheckMerges(HardSwish("Div"), "Add>a Clip>c Mul>m Div>y", {"y", "c"});
  CheckMerges(HardSwish("Div"), "Add>a Clip>c Mul>m Div>y", {"y", "m"});
  Nodes nodes = HardSwish("Div");
  nodes[1].mutable_inputs()[1] = "number";  // from 3 on
  CheckMerges(nodes, "Add>a Clip>c Mul>m Div>y");
  nodes = HardSwish("Div");
  nodes[2].mutable_inputs()[1] = "a";
  CheckMerges(nodes, "Add>a Clip>c Mul>m Div>y");
  nodes = HardSwish("Mul");
  nodes[3].mutable_inputs()[1] = "six";
  CheckMerges(nodes, "Add>a Clip>c Mul>m Mul>y");
  const OperatorDef gate("HardSigmoid", {"x"}, {"g"});
  CheckMerges({gate, Binary("Mul", "x", "g", "y")}, "HardSigmoid>g Mul>y");
}

}  // namespace
}  // namespace graph_passes_test
