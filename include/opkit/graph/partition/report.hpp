// PartitionReport: the nodes that each partitioner took, the reasons for the others, and the values
// at the boundary of each subgraph; as text, JSON and a picture.
#ifndef OPKIT_GRAPH_PARTITION_REPORT_HPP_
#define OPKIT_GRAPH_PARTITION_REPORT_HPP_

#include "opkit/graph/dot.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The result of all partitioners of one Partition call.
struct PartitionReport {
  struct Node {
    int subgraph = -1;  // index in `subgraphs`; -1: the node stays
    // Pairs of a partitioner and its reason, in the order of the partitioners.
    std::vector<std::pair<std::string, std::string>> refused;
  };
  struct Subgraph {
    std::string partitioner, op, name;  // op and name of the new node; no name: it was rejected
    int kind = -1;                      // -1: any
    std::vector<int> nodes;             // indices in `graph`
    std::vector<std::string> inputs, outputs;
    // Bytes that cross the boundary in a run; values of unknown dtype or shape count 0.
    uint64_t input_bytes = 0, output_bytes = 0;
    int open_values = 0;    // values at the boundary with unknown dtype or shape
    uint64_t flops = 0;     // operations of the nodes with known cost
    int unknown_costs = 0;  // nodes with unknown cost
    // Times that accept_if_faster measured: a run of the original nodes, and a run of the operator
    // that replaces them. 0 without a measurement.
    double flat_ns = 0, own_ns = 0;
    std::string rejected;  // the reason; empty: the subgraph was accepted
  };

  Graph graph;              // the graph before the first partitioner
  std::vector<Node> nodes;  // by node of `graph`
  std::vector<Subgraph> subgraphs;

  int num_taken() const;  // nodes in accepted subgraphs
};

// Returns text for people: a few lines for each subgraph, then the nodes in each subgraph
// and those that stay for the same reason.
std::string ToString(const PartitionReport& report);
// Returns {"taken": 2, "of": 5, "subgraphs": [{"partitioner": …, "op", "name", "kind", "nodes",
// "inputs", "outputs", "input_bytes", "output_bytes", "open_values", "flops", "unknown_costs",
// "flat_ns", "own_ns", "rejected"}], "nodes": [{"node": 0, "op", "name", "subgraph" and
// "taken_by", or "refused": {partitioner: reason}}]}.
std::string ToJson(const PartitionReport& report);
// Returns the graph in the language of Graphviz, with a coloured box around each accepted subgraph.
std::string ToDot(const PartitionReport& report, const DotOptions& options = {});

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/partition/impl/report.ipp"
#endif

#endif  // OPKIT_GRAPH_PARTITION_REPORT_HPP_
