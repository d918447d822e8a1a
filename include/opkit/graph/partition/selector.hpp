// SubgraphSelector: the other way to write a partitioner (MXNet's SubgraphSelector): a stateful
// object that decides node by node how a subgraph grows.
#ifndef OPKIT_GRAPH_PARTITION_SELECTOR_HPP_
#define OPKIT_GRAPH_PARTITION_SELECTOR_HPP_

#include "opkit/graph/partition/partitioner.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// A selector for one graph. Select is called, in topological order, for every node that is in no
// subgraph yet and that no earlier partitioner made. If it returns true, the subgraph grows from
// that node: SelectInput and SelectOutput are called for neighbours, breadth first. Filter then
// drops nodes. A set that cannot run as one node is cut into few subgraphs (CutSubgraphs).
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
  // Returns true to begin a subgraph with the node.
  virtual bool Select(const PartitionNode& node) = 0;
  // Returns true to add `input`, the producer of an input of the node.
  virtual bool SelectInput(const PartitionNode&, const PartitionNode& /*input*/) { return false; }
  // Returns true to add `output`, a reader of an output of the node.
  virtual bool SelectOutput(const PartitionNode&, const PartitionNode& /*output*/) { return false; }
  // Returns the candidates that stay in the subgraph. `candidates` are in the order in which they
  // were added. Later subgraphs may take the other candidates. Returning another node, or a node
  // twice, is an Error (kInvalidArgument).
  virtual std::vector<PartitionNode> Filter(const std::vector<PartitionNode>& candidates) {
    return candidates;
  }
  // Prepares for the next subgraph; called before each Select.
  virtual void Reset() {}
  // Returns the kind of the current subgraph; called before Filter.
  virtual int Kind() const { return kAnySubgraph; }
};

// Takes the nodes that the selector selects; each of its subgraphs becomes a set of the answer.
// Throws kInvalidArgument for a wrong result of Filter, kOutOfRange for a kind below -1.
void MarkBySelector(SubgraphSelector& selector, PartitionAnswer& answer);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/partition/impl/selector.ipp"
#endif

#endif  // OPKIT_GRAPH_PARTITION_SELECTOR_HPP_
