// ProcessParts: the parts of a graph, what crosses between them, and what is refused.
#include "opkit/cluster/process_parts.hpp"

#include <doctest/doctest.h>

#include "opkit/cluster/local.hpp"
#include "opkit/cluster/operators.hpp"
#include "opkit/graph.hpp"
#include "opkit/ops/all.hpp"

namespace process_parts_test {
namespace {

using namespace opkit;

Graph TwoNodes() {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("Neg", {"x"}, {"a"}).Process(0));
  graph.AddNode(OperatorDef("Exp", {"a"}, {"b"}).Process(1));
  graph.AddOutput("b");
  return graph;
}

TEST_CASE("each process has its nodes, a Send or a Recv, and the values that it needs") {
  const ProcessParts parts(TwoNodes(), 2);
  REQUIRE(parts.crossing().size() == 1);
  CHECK(parts.crossing()[0].value == "a");
  CHECK(parts.crossing()[0].from == 0);
  CHECK(parts.crossing()[0].to == 1);
  const Graph first = parts.Part(0), second = parts.Part(1);
  REQUIRE(first.num_nodes() == 2);
  CHECK(first.node(1).type() == "opkit.cluster.Send");
  CHECK(first.outputs().empty());
  REQUIRE(second.num_nodes() == 2);
  CHECK(second.node(0).type() == "opkit.cluster.Recv");
  CHECK(second.inputs().empty());
  CHECK(second.outputs() == std::vector<std::string>{"b"});
}

TEST_CASE("Compile without a communicator shows the part of a process") {
  PlanOptions options;
  options.cluster.process = 1;
  options.cluster.processes = 2;
  REQUIRE(bool(detail::g_process_part));
  CHECK(Compile(TwoNodes(), options).graph().node(0).type() == "opkit.cluster.Recv");
}

}  // namespace
}  // namespace process_parts_test
