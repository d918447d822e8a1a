// The random graphs themselves: the same for the same seed, right, and of the shape asked for.
#include "random_graph.hpp"

#include <doctest/doctest.h>

#include <cmath>

namespace random_graph_test {
using namespace opkit;

namespace {

int CountType(const Graph& graph, const std::string& type) {
  int count = 0;
  for (const OperatorDef& def : graph.nodes()) count += def.type() == type;
  return count;
}

}  // namespace

TEST_CASE("random graphs are whole, deterministic and stay in range") {
  for (const bool rewrites : {false, true})
    for (uint64_t seed = 1; seed <= 30; ++seed) {
      CAPTURE(seed);
      CAPTURE(rewrites);
      const RandomGraphOptions options{
          .rewrites = rewrites, .controls = seed % 2 == 0, .shuffled = !rewrites && seed % 3 == 0};
      const Graph graph = RandomGraph(seed, options);
      Check(graph);
      CHECK(graph.nodes() == RandomGraph(seed, options).nodes());
      CHECK(graph.num_nodes() == 30);
      REQUIRE(!graph.outputs().empty());
      const auto inputs = RandomInputs(graph, seed);
      const auto outputs = RunInOrder(graph, inputs), again = RunInOrder(graph, inputs);
      for (size_t o = 0; o < outputs.size(); ++o) {
        CHECK(detail::SameBytes(outputs[o], again[o]));
        for (const float element : outputs[o].ToVector<float>()) CHECK(std::abs(element) <= 4.001);
      }
    }
  CHECK(RandomGraph(1).nodes() != RandomGraph(2).nodes());
}

TEST_CASE("random graphs keep to their options") {
  const RandomGraphOptions many{.nodes = 300, .rewrites = true, .controls = true};
  const Graph graph = RandomGraph(1, many);
  for (const char* type :
       {"Add", "Mul", "MatMul", "Sum", "Relu", "Scale", "Identity", "Accumulate"})
    CHECK(CountType(graph, type) > 0);
  int shared = 0, rewritten = 0, controls = 0;
  const GraphView view(graph);
  for (int value = 0; value < view.num_values(); ++value) {
    shared += view.consumers(value).size() > 1;
    rewritten += view.IsRewritten(value);
  }
  for (const OperatorDef& def : graph.nodes()) controls += !def.control_inputs().empty();
  CHECK(shared > 20);
  CHECK(rewritten > 5);
  CHECK(controls > 20);

  const Graph plain = RandomGraph(1, {.nodes = 300, .aliases = false});
  CHECK(CountType(plain, "Identity") == 0);
  CHECK(CountType(plain, "Accumulate") == 0);
  const Graph chain = RandomGraph(1, {.nodes = 50, .window = 1});
  CHECK(chain.outputs().size() == 1);
  const Graph shuffled = RandomGraph(1, {.shuffled = true});
  CHECK(GraphView(shuffled).order() != GraphView(RandomGraph(1)).order());
}

}  // namespace random_graph_test
