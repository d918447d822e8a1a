// SaveGraphJson, LoadGraphJson: graphs as JSON text and back, exact to the bit. The definitions
// need nlohmann/json; with CMake the target opkit::json contains them.
#ifndef OPKIT_INTEROP_JSON_HPP_
#define OPKIT_INTEROP_JSON_HPP_

#include "opkit/graph/graph.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Returns the graph as text: {"format": "opkit graph", "version": 1, "inputs": […], "constants":
// […], "nodes": […], "outputs": […]}. A node whose operator comes from a library has a member such
// as "library": {"name": "libexp_log.so", "version": "0.1.0"}, as the library announces itself.
// Errors name the path in the document. Throws kUnsupported for a tensor that the host cannot reach
// or whose layout cannot be converted, for a subgraph that is no Graph, and for an attribute or
// subgraph whose name is not UTF-8. Throws kUninitialized for a tensor with a dtype and no data.
std::string SaveGraphJson(const Graph& graph);

// Returns the saved graph, with attributes and tensors exact to the bit. Operators that came from
// libraries must be registered: one kNotFound Error names all missing operators and their
// libraries. An operator of the same name is enough, whatever its library and version. Other
// operators need not be registered. Compiling the graph checks its nodes against their schemas.
// Errors name the place: "nodes[3].attributes.alpha.float: expected a number, found array".
Graph LoadGraphJson(std::string_view text);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/interop/impl/json.ipp"
#endif

#endif  // OPKIT_INTEROP_JSON_HPP_
