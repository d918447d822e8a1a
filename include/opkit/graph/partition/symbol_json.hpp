// Graphs as partitioners in MXNet's spelling read them: JSON text in the shape of its symbols, with
// inferred types beside. Written without a JSON library. opkit's own format, which is also read
// back, is interop/json.hpp.
#ifndef OPKIT_GRAPH_PARTITION_SYMBOL_JSON_HPP_
#define OPKIT_GRAPH_PARTITION_SYMBOL_JSON_HPP_

#include "opkit/graph/graph_inference.hpp"

namespace opkit::inline OPKIT_ABI {

// The text, and the node of the graph that each of its nodes is: -1 for those that stand for inputs
// and constants, whose op is "null".
struct SymbolJson {
  std::string text;
  std::vector<int> nodes;
};

// {"nodes": [{"op": "null", "name": "X", "attrs": {"isArg": "True"}, "inputs": []}, {"op": "Exp",
// "name": "a", "attrs": {"scale": "2"}, "inputs": [[0, 0, 0]], "dtypes": ["float32"], "shapes":
// [[2, 3]]}], "arg_nodes": [0], "heads": [[1, 0, 0]]}. Nodes come after those that they read;
// attributes are text, as AttrMap reads it; an extent that is not known is -1, a shape of unknown
// rank null. Constants have isArg too, and "constant": "True". A node without a name gets one: its
// op and number. The version of a value that rewriting nodes leave is that of the last before the
// reader. `is_arg`: by input of the graph, what its isArg says: false for an input of a subgraph
// that another operator of the model makes. Empty: all are true.
SymbolJson WriteSymbolJson(const GraphView& view, const GraphTypes& types,
                           const std::vector<bool>& is_arg = {});

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/partition/impl/symbol_json.ipp"
#endif

#endif  // OPKIT_GRAPH_PARTITION_SYMBOL_JSON_HPP_
