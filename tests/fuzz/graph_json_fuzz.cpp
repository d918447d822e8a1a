// Any text: an Error, or a graph that survives being saved and loaded again.
#include <cstdlib>

#include "opkit/graph/subgraph.hpp"
#include "opkit/interop/json.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  opkit::Graph graph;
  try {
    graph = opkit::LoadGraphJson(text);
  } catch (const opkit::Error&) {
    return 0;
  }
  const opkit::Graph again = opkit::LoadGraphJson(opkit::SaveGraphJson(graph));
  if (!opkit::SameGraph(graph, again)) std::abort();
  return 0;
}
