// WriteSymbolJson: writes a graph as JSON in the format of MXNet's symbols, plus inferred types,
// for partitioners with MXNet's signatures. Needs no JSON library. interop/json.hpp has opkit's own
// format, which opkit can also read.
#ifndef OPKIT_GRAPH_PARTITION_SYMBOL_JSON_HPP_
#define OPKIT_GRAPH_PARTITION_SYMBOL_JSON_HPP_

#include "opkit/graph/graph_inference.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The JSON text, and for each of its nodes the index of the graph's node. Inputs and constants are
// nodes of the text too, with the op "null" and index -1.
struct SymbolJson {
  std::string text;
  std::vector<int> nodes;
};

// Writes a graph as {"nodes": [{"op": "null", "name": "X", "attrs": {"isArg": "True"}, "inputs":
// []}, {"op": "Exp", "name": "a", "attrs": {"scale": "2"}, "inputs": [[0, 0, 0]], "dtypes":
// ["float32"], "shapes": [[2, 3]]}], "arg_nodes": [0], "heads": [[1, 0, 0]]}. Nodes are in
// topological order. Attributes are text that AttrMap can read. "dtypes" and "shapes" are those of
// outputs; an unknown extent is -1, a shape of unknown rank null. "null" nodes also have "isAux":
// "False", and constants "constant": "True". Control inputs are listed by name as "control_inputs".
// A node without a name gets its op and number as a name. An entry of a rewritten value refers to
// the last node before the reader that has the value as an output.
//
// `is_arg` has the value of isArg for each input of the graph: false for an input of a subgraph
// that a node of the whole graph makes. If empty, all are true.
SymbolJson WriteSymbolJson(const GraphView& view, const GraphTypes& types,
                           const std::vector<bool>& is_arg = {});

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/partition/impl/symbol_json.ipp"
#endif

#endif  // OPKIT_GRAPH_PARTITION_SYMBOL_JSON_HPP_
