// expect-shown: // defined in opkit/graph.hpp
#include <opkit/opkit.hpp>

using namespace opkit;

void Build() {
  Graph g;
  g.AddInput("X", DType::kFloat32, {2});
}
