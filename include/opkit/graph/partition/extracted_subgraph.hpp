// ExtractedSubgraph and NodeReplacement: nodes of a graph as a graph of their own, and one node for
// their place (extract.hpp).
#ifndef OPKIT_GRAPH_PARTITION_EXTRACTED_SUBGRAPH_HPP_
#define OPKIT_GRAPH_PARTITION_EXTRACTED_SUBGRAPH_HPP_

#include "opkit/graph/graph.hpp"

namespace opkit::inline OPKIT_ABI {

// Values keep their names: input i of the body is the parent's value inputs[i], and the like for
// outputs.
struct ExtractedSubgraph {
  Graph body;
  std::vector<std::string> inputs;   // read inside, made outside; in the order of their readers
  std::vector<std::string> outputs;  // made inside; read outside, or outputs of the graph
  std::vector<std::string> control_inputs;  // nodes outside that some node inside waits for
};

struct NodeReplacement {
  std::vector<int> nodes;
  // What takes their place: reads only values made outside of them, writes those of their outputs
  // that are used. Where somebody waits for one of the nodes, it needs a name.
  OperatorDef def;
};

}  // namespace opkit

#endif  // OPKIT_GRAPH_PARTITION_EXTRACTED_SUBGRAPH_HPP_
