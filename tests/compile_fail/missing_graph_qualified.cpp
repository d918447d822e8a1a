// expect-shown: // defined in opkit/graph.hpp
#include <opkit/opkit.hpp>

void Build() { opkit::Graph g; }
