// PartitionReport: which nodes each partitioner took, why the others stayed, and what crosses the
// boundary of each subgraph, as text, JSON and a picture.
#ifndef OPKIT_GRAPH_PARTITION_REPORT_HPP_
#define OPKIT_GRAPH_PARTITION_REPORT_HPP_

#include "opkit/graph/dot.hpp"

namespace opkit::inline OPKIT_ABI {

struct PartitionReport {
  struct Node {
    int subgraph = -1;  // among `subgraphs`; -1: it stays
    // {partitioner, why it does not have the node}, in the order in which they were asked.
    std::vector<std::pair<std::string, std::string>> refused;
  };
  struct Subgraph {
    std::string partitioner, op, name;  // of the node in its place; no name: it was rejected
    int kind = -1;                      // -1: any
    std::vector<int> nodes;             // of `graph`
    std::vector<std::string> inputs, outputs;
    // Bytes that cross the boundary in a run; those of values whose shape is open do not count.
    uint64_t input_bytes = 0, output_bytes = 0;
    int open_values = 0;  // values at the boundary whose bytes are not known
    uint64_t flops = 0;   // of the nodes whose cost is known
    int unknown_costs = 0;
    // What accept_if_faster measured: a run of the nodes by themselves, and of the operator in
    // their place. 0: it did not measure.
    double flat_ns = 0, own_ns = 0;
    std::string rejected;  // why; empty: it was accepted
  };

  Graph graph;              // as the first partitioner saw it
  std::vector<Node> nodes;  // of `graph`
  std::vector<Subgraph> subgraphs;

  int num_taken() const;  // nodes in accepted subgraphs
  // For people: a line for each subgraph, then one for each node.
  std::string ToText() const;
  // {"taken": 2, "of": 5, "subgraphs": [{"partitioner": …, "op", "name", "kind", "nodes", "inputs",
  // "outputs", "input_bytes", "output_bytes", "open_values", "flops", "unknown_costs",
  // "flat_ns", "own_ns", "rejected"}], "nodes": [{"node": 0, "op", "name", "taken_by" or "refused":
  // {partitioner: why}}]}.
  std::string ToJson() const;
  // The graph in the language of Graphviz, each accepted subgraph in a box of its own colour.
  std::string ToDot(const DotOptions& options = {}) const;
};

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/partition/impl/report.ipp"
#endif

#endif  // OPKIT_GRAPH_PARTITION_REPORT_HPP_
