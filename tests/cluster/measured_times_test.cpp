// TimesOfNodes: the nodes of a profile by their first outputs.
#include "opkit/cluster/measured_times.hpp"

#include <doctest/doctest.h>

#include "opkit/graph.hpp"
#include "support/error_of.hpp"

namespace measured_times_test { namespace {

using namespace opkit;

TEST_CASE("times are found by the first output of a node") {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("Neg", {"x"}, {"a"}).Name("first"));
  graph.AddNode(OperatorDef("Exp", {"a"}, {"b"}));
  graph.AddOutput("b");
  const Plan plan = Compile(graph);
  RunProfile run;
  run.nodes.push_back({0, "Neg (first)", 0, 1000, 3000, 0});
  run.nodes.push_back({1, "Exp (b)", 3000, 3500, 4000, 0});
  const MeasuredTimes times = TimesOfNodes(plan, run);
  CHECK(times == MeasuredTimes{{"a", 2000}, {"b", 500}});
  // The node of a part may have another name.
  CHECK(TimeOfNode(times, OperatorDef("Neg", {"x"}, {"a"})) == 2000);
  const auto code_of = [&](const OperatorDef& def) {
    return ErrorOf([&] { TimeOfNode(times, def); }).code();
  };
  CHECK(code_of(OperatorDef("Neg", {"x"}, {"c"})) == ErrorCode::kNotFound);
  CHECK(code_of(OperatorDef("opkit.cluster.Barrier")) == ErrorCode::kNotFound);
}

}  // namespace
}  // namespace measured_times_test
