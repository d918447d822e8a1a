// Any bytes: an Error, or a graph that is the same when it is read again.
#include <cstdlib>

#include "opkit/graph/subgraph.hpp"
#include "opkit/interop/onnx.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  opkit::OnnxOptions options;
  options.allow_unknown_operators = true;
  options.max_nodes = 1000;  // functions that call functions make many out of few bytes
  opkit::Graph graph;
  try {
    graph = opkit::ParseOnnxModel(bytes, options).graph;
  } catch (const opkit::Error&) {
    return 0;
  }
  if (!opkit::SameGraph(graph, opkit::ParseOnnxModel(bytes, options).graph)) std::abort();
  return 0;
}
