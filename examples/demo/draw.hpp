// Pictures of a plan: its memory, and its graph.
#ifndef OPKIT_EXAMPLES_DEMO_DRAW_HPP_
#define OPKIT_EXAMPLES_DEMO_DRAW_HPP_

#include <opkit/graph/plan.hpp>

namespace demo {

// Writes <name>_memory.svg and <name>_graph.dot into `folder`, and <name>_graph.svg if Graphviz is
// installed. Returns the paths of the files for a browser. Draws nothing for a plan without shapes,
// which has not run. Throws opkit::Error for a file that cannot be written.
std::vector<std::string> DrawPlan(const opkit::Plan& plan, const std::string& folder,
                                  const std::string& name);

}  // namespace demo

#endif  // OPKIT_EXAMPLES_DEMO_DRAW_HPP_
