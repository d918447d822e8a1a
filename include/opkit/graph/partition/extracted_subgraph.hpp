// The types of extract.hpp. ExtractedSubgraph: a graph made of nodes of another graph.
// NodeReplacement: the node that replaces them.
#ifndef OPKIT_GRAPH_PARTITION_EXTRACTED_SUBGRAPH_HPP_
#define OPKIT_GRAPH_PARTITION_EXTRACTED_SUBGRAPH_HPP_

#include "opkit/graph/graph.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// A graph made of nodes of a parent graph. Values keep their names: input i of the body is the
// parent's value inputs[i], and output i is the parent's value outputs[i].
struct ExtractedSubgraph {
  Graph body;
  std::vector<std::string> inputs;   // read inside, made outside; in the order of their readers
  std::vector<std::string> outputs;  // made inside; read outside, or outputs of the graph
  std::vector<std::string> control_inputs;  // nodes outside that are control inputs of nodes inside
};

// A set of nodes and the node that replaces it.
struct NodeReplacement {
  std::vector<int> nodes;
  // The new node. It may read only values made outside of `nodes`, and must make all outputs of
  // `nodes` that are used outside. It needs a name if one of `nodes` is a control input.
  OperatorDef def;
};

}}  // namespace opkit

#endif  // OPKIT_GRAPH_PARTITION_EXTRACTED_SUBGRAPH_HPP_
