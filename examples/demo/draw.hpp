// Pictures of a plan: its memory, and its graph.
#ifndef OPKIT_EXAMPLES_DEMO_DRAW_HPP_
#define OPKIT_EXAMPLES_DEMO_DRAW_HPP_

#include <opkit/graph/plan.hpp>

namespace demo {

// Writes <name>_memory.svg and <name>_graph.dot into `folder`, and where Graphviz is installed
// <name>_graph.svg too. Returns the paths of what a browser shows: SVG where there is one. Of a
// plan that has not run, and so has no shapes, it draws nothing. Throws opkit::Error for a file
// that cannot be written.
std::vector<std::string> DrawPlan(const opkit::Plan& plan, const std::string& folder,
                                  const std::string& name);

}  // namespace demo

#endif  // OPKIT_EXAMPLES_DEMO_DRAW_HPP_
