// SubgraphSelector: a stateful object that is asked node by node how a subgraph grows, the other
// way to write a partitioner (MXNet's SubgraphSelector).
#ifndef OPKIT_GRAPH_PARTITION_SELECTOR_HPP_
#define OPKIT_GRAPH_PARTITION_SELECTOR_HPP_

#include "opkit/graph/partition/partitioner.hpp"

namespace opkit::inline OPKIT_ABI {

// One for each graph. Every node that no subgraph has yet is offered to Select, in an order in
// which nodes can run. Where that answers true, the subgraph grows from it: neighbours are asked
// for, breadth first, and Filter drops what is not wanted after all. A set that cannot run as one
// node is then cut into as few as possible.
//
//   class Chains final : public SubgraphSelector {
//     bool Select(const PartitionNode& node) override { return node.op() == "Exp"; }
//     bool SelectOutput(const PartitionNode&, const PartitionNode& output) override {
//       return output.op() == "Log";
//     }
//   };
class SubgraphSelector {
 public:
  virtual ~SubgraphSelector() = default;
  // Begins a subgraph with the node.
  virtual bool Select(const PartitionNode& node) = 0;
  // Takes the producer `input` of one of the node's inputs too.
  virtual bool SelectInput(const PartitionNode&, const PartitionNode& /*input*/) { return false; }
  // Takes the reader `output` of one of the node's outputs too.
  virtual bool SelectOutput(const PartitionNode&, const PartitionNode& /*output*/) { return false; }
  // Which of the nodes that were taken, in the order in which they were, stay. The others may go
  // to later subgraphs. Error (kInvalidArgument) where it answers a node that was not among them.
  virtual std::vector<PartitionNode> Filter(const std::vector<PartitionNode>& candidates) {
    return candidates;
  }
  // Before the next subgraph.
  virtual void Reset() {}
  // The kind of the subgraph that was selected last.
  virtual int Kind() const { return kAnySubgraph; }
};

// Fills in an answer by asking the selector: each of its subgraphs is a set of the answer.
void MarkBySelector(SubgraphSelector& selector, PartitionAnswer& answer);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/partition/impl/selector.ipp"
#endif

#endif  // OPKIT_GRAPH_PARTITION_SELECTOR_HPP_
