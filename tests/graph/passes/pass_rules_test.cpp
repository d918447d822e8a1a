#include "opkit/graph/passes/pass_rules.hpp"

#include <doctest/doctest.h>

#include "graph/passes/pass_graphs.hpp"

namespace pass_rules_test {
using namespace pass_graphs;

TEST_CASE("a node has an effect beside its outputs if it is stateful, has none, or is unknown") {
  using detail::HasEffect;
  CHECK_FALSE(HasEffect(Relu("X", "Y")));
  CHECK(HasEffect(OperatorDef("Noise").Output("Y")));
  CHECK(HasEffect(OperatorDef("Report").Input("X")));
  CHECK(HasEffect(OperatorDef("Relu", {"X"}, {""})));
  CHECK(HasEffect(OperatorDef("NoSuchOperator", {"X"}, {"Y"})));
}

}  // namespace pass_rules_test
