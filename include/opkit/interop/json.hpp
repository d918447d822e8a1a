// Graphs as JSON text and back, everything to the bit. The definitions need nlohmann/json; with
// CMake the target opkit::json holds them.
#ifndef OPKIT_INTEROP_JSON_HPP_
#define OPKIT_INTEROP_JSON_HPP_

#include "opkit/graph/graph.hpp"

namespace opkit::inline OPKIT_ABI {

// {"format": "opkit graph", "version": 1, "inputs": […], "constants": […], "nodes": […],
// "outputs": […]}. A node whose operator a library brought says which: "library": {"name":
// "libexp_log.so", "version": "0.1.0"}, as the library announces itself. Errors, with the path in
// the document: kUnsupported for a tensor that the host cannot reach or that has a layout of its
// own, a subgraph that is no Graph, a name of an attribute or subgraph that is not UTF-8;
// kUninitialized for a tensor with a dtype and no data.
std::string SaveGraphJson(const Graph& graph);

// The graph that was saved, attributes and tensors to the bit. The operators need not be
// registered, but those of libraries: one Error (kNotFound) names all that are missing, with their
// libraries. An operator of the name is enough, whatever library and version it is of. Compiling
// the graph checks its nodes against their schemas. Errors name the place:
// "nodes[3].attributes.alpha.float: expected a number, found array".
Graph LoadGraphJson(std::string_view text);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/interop/impl/json.ipp"
#endif

#endif  // OPKIT_INTEROP_JSON_HPP_
