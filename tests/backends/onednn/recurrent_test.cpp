// LSTM and GRU of the "onednn" backend: the same as the plain operators, with weights that the plan
// packs.
#include <array>

#include "backends/onednn/images.hpp"

namespace recurrent_test { namespace {

using namespace opkit;
using namespace onednn_test;

Tensor Small(const Shape& shape, uint64_t seed) {
  Tensor w = Random(shape, seed);
  for (int64_t i = 0; i < w.numel(); ++i) w.mutable_data<float>()[i] *= 0.2f;
  return w;
}
struct Layer {
  const char* op;
  int64_t gates;
  bool has_cell;
};
constexpr Layer kLayers[] = {{"LSTM", 4, true}, {"GRU", 3, false}};

// A layer of 24 inputs and 20 outputs over 33 steps of 5 sequences, work for three threads.
// `states`: how many of the initial states are given.
Graph GraphOfLayer(const Layer& layer, Arguments args, bool has_bias, int states) {
  const int64_t rows = layer.gates * 20;
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {33, 5, 24});
  graph.AddConstant("w", Small({1, rows, 24}, 1));
  graph.AddConstant("r", Small({1, rows, 20}, 2));
  graph.AddConstant("b", Small({1, 2 * rows}, 3));
  graph.AddConstant("h", Random({1, 5, 20}, 4));
  graph.AddConstant("c", Random({1, 5, 20}, 5));
  OperatorDef node(layer.op, {"x", "w", "r", has_bias ? "b" : "", ""}, {"y", "last"},
                   std::move(args));
  if (states > 0) node.Input("h");
  if (states > 1) node.Input("c");
  if (layer.has_cell) node.Output("cell");
  graph.AddNode(node);
  for (const std::string& output : node.outputs()) graph.AddOutput(output);
  return graph;
}
auto RunAll(const Graph& graph, int threads, bool plainly = false) {
  Graph chosen = graph;
  if (plainly) chosen.ReplaceNode(0, OperatorDef(graph.node(0)).Backends("reference", kRequired));
  Executor executor(Compile(chosen, {.threads = threads, .memory = {.verify = true}}));
  const Tensor x = Random({33, 5, 24}, 9);
  executor.Run({{"x", x}});
  return executor.Run({{"x", x}});
}

TEST_CASE("Layers that models use are computed as the plain operators do") {
  for (const Layer& layer : kLayers)
    for (const char* direction : {"forward", "reverse"})
      for (const bool has_bias : {false, true})
        for (int states = 0; states <= 1 + layer.has_cell; ++states)
          for (const int64_t variant : {0, 1}) {
            INFO(layer.op, " ", direction, ", bias ", has_bias, ", states ", states);
            Arguments args{{"direction", direction}};
            if (!layer.has_cell) args.Set("linear_before_reset", variant);
            const Graph graph = GraphOfLayer(layer, args, has_bias, states);
            CHECK(Compile(graph).choice(0).kernel->backend == "onednn");
            auto expected = RunAll(graph, 1, true);
            for (const int threads : {1, 3})
              for (const auto& [name, value] : RunAll(graph, threads))
                CheckClose(value, expected.Get(name));
          }
}

TEST_CASE("Nodes that oneDNN cannot compute are left to other backends, with the reason") {
  const auto refused = [](const Layer& layer, const Arguments& args, const char* why) {
    const Graph graph = GraphOfLayer(layer, args, true, 0);
    const NodeChoice choice = Compile(graph).choice(0);
    CHECK(choice.kernel->backend != "onednn");
    CHECK(choice.passed_over.find(why) != std::string::npos);
  };
  for (const Layer& layer : kLayers) {
    refused(layer, {{"clip", 3.f}}, "bound the gates");
    std::vector<std::string> relu(layer.has_cell ? 3 : 2, "Relu");
    refused(layer, {{"activations", relu}}, "default activations");
  }
  refused(kLayers[0], {{"input_forget", 1}}, "forget gate");
}

// oneDNN likes to pack weights of such sizes for a number of sequences.
TEST_CASE(
    "Layers of sizes that vectors do not divide are cut for threads, and describe themselves") {
  for (const Layer& layer : kLayers)
    for (const auto& [steps, batch, input, hidden] :
         {std::array<int64_t, 4>{10, 16, 40, 100}, {1, 200, 70, 70}, {4, 16, 17, 33}}) {
      INFO(layer.op, " ", steps, " ", batch, " ", input, " ", hidden);
      const int64_t rows = layer.gates * hidden;
      Graph graph;
      graph.AddInput("x", DType::kFloat32, {steps, batch, input});
      graph.AddConstant("w", Small({1, rows, input}, 1));
      graph.AddConstant("r", Small({1, rows, hidden}, 2));
      graph.AddNode(OperatorDef(layer.op, {"x", "w", "r"}, {"y"}));
      graph.AddOutput("y");
      Graph plain = graph;
      plain.ReplaceNode(0, OperatorDef(graph.node(0)).Backends("reference", kRequired));
      const Tensor x = Random({steps, batch, input}, 9), expected = RunGraph(plain, x);
      const Plan plan = Compile(graph, {.memory = {.release_constants = true}});
      REQUIRE(plan.choice(0).kernel->backend == "onednn");
      CHECK(ToString(plan.Explain()).find("onednn") != std::string::npos);
      for (const int threads : {1, 2, 3, 8}) CheckClose(RunGraph(graph, x, threads), expected);
    }
}

TEST_CASE("Packed weights are unpacked without a change") {
  const Graph graph = GraphOfLayer(kLayers[0], {}, true, 0);
  const Layout packed = Compile(graph).choice(0).config.input_layouts[1];
  REQUIRE_FALSE(packed.is_standard());
  const Tensor w = *graph.FindConstant("w");
  const Tensor there = ConvertLayout(w, packed);
  CHECK(ConvertLayout(there, Layout()).ToVector<float>() == w.ToVector<float>());
}

}  // namespace
}  // namespace recurrent_test
