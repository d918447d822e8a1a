// The steps of a plan by name.
#ifndef OPKIT_TESTS_GRAPH_PLAN_STEPS_OF_HPP_
#define OPKIT_TESTS_GRAPH_PLAN_STEPS_OF_HPP_

#include <string>
#include <vector>

#include "opkit/graph/plan.hpp"
#include "opkit/graph/plan/plan_state.hpp"

// Names the steps in their order: "standard to A of X" for a converter, the first output for other
// nodes.
inline std::vector<std::string> StepsOf(const opkit::Plan& plan) {
  const auto found = plan.state()->GetLatest();
  std::vector<std::string> steps;
  for (int step = 0; step < found->schedule().size(); ++step) {
    const opkit::OperatorDef& node =
        found->view().graph().node(found->schedule().original_of(step));
    steps.push_back(node.name().empty() ? node.outputs()[0] : node.name());
  }
  return steps;
}

#endif  // OPKIT_TESTS_GRAPH_PLAN_STEPS_OF_HPP_
