// Fusion of neighbours into a Conv, a MatMul or a Gemm of the "onednn" backend: results stay equal,
// and no fusion happens where another node reads a value in between.
#include "backends/onednn/images.hpp"
#include "opkit/backends/onednn/epilogue.hpp"
#include "opkit/graph/passes.hpp"

namespace fusion_test { namespace {

using namespace opkit;
using namespace onednn_test;

using Nodes = std::vector<OperatorDef>;

// Weights that keep the size of values.
Tensor Weights(const Shape& shape, uint64_t seed) {
  Tensor w = Random(shape, seed);
  for (int64_t i = 0; i < w.numel(); ++i) w.mutable_data<float>()[i] *= 0.1f;
  return w;
}
// h = Conv(x) in blocks of channels, then these nodes; r is another convolution of x.
Graph Images(const Nodes& nodes, int64_t batch = 1, int64_t channels = 64) {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {batch, 32, 12, 12});
  graph.AddConstant("w", Weights({channels, 32, 3, 3}, 1));
  graph.AddConstant("v", Weights({channels, 32, 3, 3}, 2));
  graph.AddConstant("each", Random({1, channels, 1, 1}, 3));
  graph.AddConstant("row", Random({1, channels, 12, 1}, 4));
  graph.AddConstant("two", Tensor::Scalar(2.f));
  const Ints pads(4, 1);
  graph.AddNode(OperatorDef("Conv", {"x", "v"}, {"r"}, {{"pads", pads}}));
  graph.AddNode(OperatorDef("Conv", {"x", "w"}, {"h"}, {{"pads", pads}}));
  for (const OperatorDef& node : nodes) graph.AddNode(node);
  graph.AddOutput("y");
  return graph;
}
Graph Rows(const Nodes& nodes, const std::string& product = "MatMul") {
  Graph graph;
  graph.AddInput("x", DType::kFloat32,
                 product == "Gemm" ? SymbolicShape{40, 64} : SymbolicShape{2, 20, 64});
  graph.AddConstant("w", Weights({64, 96}, 1));
  graph.AddConstant("bias", Random(Shape{96}, 2));
  graph.AddConstant("two", Tensor::Scalar(2.f));
  graph.AddConstant("column", Random({20, 1}, 3));
  graph.AddConstant("v", Weights({64, 96}, 4));
  graph.AddNode(OperatorDef(product, {"x", "v"}, {"r"}));
  graph.AddNode(OperatorDef(product, {"x", "w"}, {"h"}));
  for (const OperatorDef& node : nodes) graph.AddNode(node);
  graph.AddOutput("y");
  return graph;
}

PlanOptions Without(std::initializer_list<const char*> passes, PassList& list) {
  for (const char* pass : passes) list.Remove(pass);
  return {.passes = &list, .memory = {.verify = true}};
}
// The operators that a plan runs together with the one that makes h.
std::string PartsIn(const Graph& graph) {
  PassList passes = DefaultPasses();
  const Plan plan = Compile(graph, Without({"fold_batch_normalization"}, passes));
  for (const Explanation::Node& node : plan.Explain().nodes) {
    std::string parts;
    bool makes_h = false;
    for (const std::string& part : node.parts) {
      parts += (parts.empty() ? "" : " ") + part.substr(0, part.find(' '));
      makes_h |= part.find("-> (h)") != std::string::npos;
    }
    if (makes_h) return parts;
  }
  return {};
}
// That the plan computes what the reference backend does, on 1 and on 3 threads.
void CheckSame(const Graph& graph) {
  const SymbolicShape& shape = graph.inputs()[0].info.shape;
  const Tensor x = Random(shape.ToShape(), 9);
  PassList passes = DefaultPasses();
  PlanOptions options = Without({"fold_batch_normalization"}, passes);
  Executor expected(Compile(Plainly(graph), options));
  for (const int threads : {1, 3}) {
    options.threads = threads;
    Executor found(Compile(graph, options));
    auto outputs = found.Run({{"x", x}});
    for (const auto& [name, value] : expected.Run({{"x", x}})) CheckClose(outputs.Get(name), value);
  }
}

TEST_CASE("Activations and arithmetic behind a convolution are computed with it") {
  const auto check = [](const Nodes& nodes, const std::string& parts) {
    CAPTURE(parts);
    for (const auto& [batch, channels] : {std::pair<int64_t, int64_t>{1, 64}, {3, 40}, {1, 20}}) {
      CAPTURE(channels);
      const Graph graph = Images(nodes, batch, channels);
      CHECK(PartsIn(graph) == parts);
      CheckSame(graph);
    }
  };
  for (const char* op : {"Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSwish"})
    check({OperatorDef(op, {"h"}, {"y"})}, StrCat("Conv ", op));
  check({OperatorDef("LeakyRelu", {"h"}, {"y"}, {{"alpha", 0.f}})}, "Conv LeakyRelu");
  for (const char* op : {"Add", "Sub", "Mul", "Div"})
    for (const char* other : {"s", "each", "two"})
      check({OperatorDef("Exp", {"r"}, {"s"}), OperatorDef(op, {"h", other}, {"y"})},
            *other == 's' ? "" : StrCat("Conv ", op));
  check({OperatorDef("Mul", {"each", "h"}, {"y"})}, "Conv Mul");
  check({OperatorDef("HardSwish", {"h"}, {"a"}), OperatorDef("Mul", {"a", "two"}, {"b"}),
         OperatorDef("Add", {"each", "b"}, {"y"})},
        "Conv HardSwish Mul Add");
}

TEST_CASE("A residual of the output's shape and layout is added with the convolution") {
  // h reads the value that is added, so that it is the last of the two to be made.
  const auto residual = [](const char* op, int64_t batch, int64_t channels) {
    Graph graph;
    graph.AddInput("x", DType::kFloat32, {batch, 32, 12, 12});
    graph.AddConstant("v", Weights({channels, 32, 3, 3}, 1));
    graph.AddConstant("w", Weights({channels, channels, 3, 3}, 2));
    const Ints pads(4, 1);
    graph.AddNode(OperatorDef("Conv", {"x", "v"}, {"r"}, {{"pads", pads}}));
    graph.AddNode(OperatorDef("Conv", {"r", "w"}, {"h"}, {{"pads", pads}}));
    graph.AddNode(OperatorDef(op, {"r", "h"}, {"s"}));
    graph.AddNode(OperatorDef("Relu", {"s"}, {"y"}));
    graph.AddOutput("y");
    return graph;
  };
  for (const char* op : {"Add", "Sum", "Mul"}) {
    CAPTURE(op);
    for (const auto& [batch, channels] : {std::pair<int64_t, int64_t>{1, 64}, {3, 40}}) {
      const Graph graph = residual(op, batch, channels);
      CHECK(PartsIn(graph) == StrCat("Conv ", op, " Relu"));
      CheckSame(graph);
    }
  }
  const Graph minus = residual("Sub", 1, 64);  // r - h is not a step of h
  CHECK(PartsIn(minus).empty());
  CheckSame(minus);
}

TEST_CASE("A value that another node reads is not fused away") {
  const auto check = [](Graph graph, const std::string& parts,
                        std::initializer_list<const char*> outputs = {}) {
    for (const char* output : outputs) graph.AddOutput(output);
    CHECK(PartsIn(graph) == parts);
    CheckSame(graph);
  };
  const OperatorDef relu("Relu", {"h"}, {"a"});
  check(Images({relu, OperatorDef("Sigmoid", {"a"}, {"y"})}), "Conv Relu Sigmoid");
  check(Images({relu, OperatorDef("Sigmoid", {"a"}, {"y"})}), "Conv Relu", {"a"});
  check(Images({relu, OperatorDef("Sigmoid", {"a"}, {"y"})}), "", {"h"});
  check(Images({relu, OperatorDef("Sigmoid", {"h"}, {"b"}), OperatorDef("Add", {"a", "b"}, {"y"})}),
        "");
  check(Images({OperatorDef("Mul", {"h", "h"}, {"y"})}), "");
  check(Images({OperatorDef("Add", {"h", "row"}, {"y"})}), "");  // one number a row of pixels
  check(Images({OperatorDef("Sub", {"two", "h"}, {"y"})}), "");
  check(Images({OperatorDef("Exp", {"h"}, {"y"})}), "");
  check(Images({OperatorDef("Relu", {"h"}, {"y"}).Backends("reference", kRequired)}), "");
  // A chosen kernel is the one that runs.
  PassList passes = DefaultPasses();
  const Graph graph = Images({OperatorDef("Relu", {"h"}, {"y"})});
  const Plan plan = Compile(graph, {.selection = {.forced = {{{"y", "reference"}}}}});
  for (const Explanation::Node& node : plan.Explain().nodes) CHECK(node.parts.empty());
}

TEST_CASE("A NaN stays a NaN in a step") {
  for (const char* op : {"Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSwish"}) {
    CAPTURE(op);
    const Graph graph = Images({OperatorDef(op, {"h"}, {"y"})});
    Tensor x = Random({1, 32, 12, 12}, 1);
    x.mutable_data<float>()[0] = NAN;
    const Tensor y = RunGraph(graph, x);
    CHECK(std::isnan(y.data<float>()[0]));
    CHECK_FALSE(std::isnan(y.data<float>()[50]));
  }
}
TEST_CASE("A NaN stays a NaN behind a convolution in the standard layout") {
  for (const char* op : {"Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSwish"}) {
    CAPTURE(op);
    Graph graph;
    graph.AddInput("x", DType::kFloat32, {2, 72, 28, 28});
    graph.AddConstant("w", Random({20, 72, 1, 1}, 1));
    graph.AddNode(OperatorDef("Conv", {"x", "w"}, {"h"}));
    graph.AddNode(OperatorDef(op, {"h"}, {"y"}));
    graph.AddOutput("y");
    CHECK(Compile(graph).choice(0).kernel->backend == "onednn");
    Tensor x = Random({2, 72, 28, 28}, 1);
    x.mutable_data<float>()[0] = NAN;
    const Tensor y = RunGraph(graph, x);
    int64_t nans = 0;  // pixel 0 of each channel of the first image
    for (int64_t i = 0; i < 20 * 784; i += 784) nans += std::isnan(y.data<float>()[i]);
    CHECK(nans == 20);
    for (int64_t i = 0; i < y.numel(); ++i) nans += std::isnan(y.data<float>()[i]);
    CHECK(nans == 2 * 20);
  }
}

TEST_CASE("A Relu behind a BatchNormalization that no convolution takes is computed with it") {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2, 3, 12, 12});
  graph.AddConstant("w", Random({20, 3, 3, 3}, 1));
  for (const char* name : {"scale", "shift", "mean"}) graph.AddConstant(name, Random(Shape{20}, 2));
  graph.AddConstant("variance", Filled(Shape{20}, 0.5f));
  graph.AddNode(OperatorDef("Conv", {"x", "w"}, {"c"}));
  graph.AddNode(
      OperatorDef("BatchNormalization", {"c", "scale", "shift", "mean", "variance"}, {"h"}));
  graph.AddNode(OperatorDef("Relu", {"h"}, {"y"}));
  graph.AddOutput("y");
  graph.AddOutput("c");
  CHECK(PartsIn(graph) == "BatchNormalization Relu");
  CheckSame(graph);
}

TEST_CASE("A bias, activations and arithmetic behind a product are computed with it") {
  const auto check = [](const Graph& graph, const std::string& parts) {
    CAPTURE(parts);
    CHECK(PartsIn(graph) == parts);
    CheckSame(graph);
  };
  for (const char* product : {"MatMul", "Gemm"}) {
    CAPTURE(product);
    const std::string begin = product;
    check(Rows({OperatorDef("Add", {"h", "bias"}, {"y"})}, product), begin + " Add");
    check(Rows({OperatorDef("Add", {"bias", "h"}, {"b"}), OperatorDef("Relu", {"b"}, {"y"})},
               product),
          begin + " Add Relu");
    check(Rows({OperatorDef("Tanh", {"h"}, {"t"}), OperatorDef("Mul", {"t", "two"}, {"m"}),
                OperatorDef("Sub", {"m", "bias"}, {"y"})},
               product),
          begin + " Tanh Mul Sub");
  }
  // With two products as inputs, the first one absorbs the Add.
  check(Rows({OperatorDef("Tanh", {"r"}, {"s"}), OperatorDef("Add", {"h", "s"}, {"y"})}), "");
  check(Rows({OperatorDef("Add", {"h", "column"}, {"y"})}), "");
  check(Rows({OperatorDef("Add", {"h", "bias"}, {"b"}), OperatorDef("Abs", {"b"}, {"c"}),
              OperatorDef("Mul", {"b", "c"}, {"y"})}),
        "MatMul Add");
}

}  // namespace
}  // namespace fusion_test
