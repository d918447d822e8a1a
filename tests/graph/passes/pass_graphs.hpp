// Support for the tests of the passes: small graphs, their listing, and a check that a pass keeps
// results.
#ifndef OPKIT_TESTS_GRAPH_PASSES_PASS_GRAPHS_HPP_
#define OPKIT_TESTS_GRAPH_PASSES_PASS_GRAPHS_HPP_

#include <doctest/doctest.h>

#include <string>

#include "graph/nodes.hpp"
#include "graph/random_graph.hpp"
#include "opkit/graph/subgraph.hpp"

namespace pass_graphs {
using namespace opkit;
using namespace graph_nodes;

inline Graph WithInputs(std::initializer_list<const char*> names) {
  Graph g;
  for (const char* name : names) g.AddInput(name, DType::kFloat32, {2, 2});
  return g;
}
inline Tensor Matrix(float a) { return Tensor::From<float>({2, 2}, {a, -a, a + 1, 0.5f}); }

// Lists the graph's constants and nodes.
inline std::string Listing(const Graph& graph) {
  std::string out;
  for (const Graph::Constant& constant : graph.constants()) out += constant.name + "; ";
  for (const OperatorDef& def : graph.nodes()) out += ToString(def) + "; ";
  return out;
}

// That a graph computes the same outputs, to the bit, before and after a pass.
inline void CheckSameResults(const Graph& before, const Graph& after, uint64_t seed) {
  Check(after);
  CHECK(after.outputs() == before.outputs());
  REQUIRE(after.inputs().size() == before.inputs().size());
  const auto inputs = RandomInputs(before, seed);
  const auto expected = RunInOrder(before, inputs), found = RunInOrder(after, inputs);
  REQUIRE(expected.size() == found.size());
  for (size_t o = 0; o < expected.size(); ++o) {
    CAPTURE(before.outputs()[o]);
    CHECK(detail::SameBytes(expected[o], found[o]));
  }
}

}  // namespace pass_graphs

#endif  // OPKIT_TESTS_GRAPH_PASSES_PASS_GRAPHS_HPP_
