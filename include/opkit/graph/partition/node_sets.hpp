// Extraction and replacement of several sets of nodes of one graph; the implementation of
// ExtractSubgraph, ReplaceNodes and Partition. Only files with definitions include this header.
#ifndef OPKIT_GRAPH_PARTITION_NODE_SETS_HPP_
#define OPKIT_GRAPH_PARTITION_NODE_SETS_HPP_

#include <algorithm>

#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/partition/cut.hpp"
#include "opkit/graph/partition/extracted_subgraph.hpp"
#include "opkit/graph/passes/pass_rules.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

void CheckNodeSet(const GraphView& view, const std::vector<int>& nodes);

std::string PathText(const Graph& graph, const std::vector<int>& path);

// Extracts sets of nodes from one graph, one after the other. The time of each depends only on the
// size of the set.
class SubgraphExtractor {
 public:
  SubgraphExtractor(const GraphView& view, const GraphTypes* types);

  // Returns the nodes as a graph. `nodes` must be in ascending order.
  ExtractedSubgraph Extract(const std::vector<int>& nodes);

 private:
  bool Inside(int node) const { return node >= 0 && node_mark_[node] == mark_; }
  // Adds a value from outside as a constant or an input of the body, once.
  void Read(int value, ExtractedSubgraph& found);
  bool IsUsedOutside(int value) const;
  // Returns the node without control inputs from outside, and adds these to `outside`.
  static OperatorDef WithoutOutsideControl(const OperatorDef& def, const NameIndex& inside,
                                           std::vector<std::string>& outside);

  const GraphView& view_;
  const GraphTypes* const types_;
  // Equal to mark_ for a node of the set and for a value that the set reads.
  IndexedVector<int> node_mark_, value_mark_;
  std::vector<std::pair<int, int>> rewritten_by_;  // node, value
  int mark_ = 0;
};

// Replaces sets of nodes. A "unit" is a node of the result: a replacement or an unchanged node.
class NodeReplacer {
 public:
  NodeReplacer(const GraphView& view, const std::vector<NodeReplacement>& replacements);

  // Returns, for each node of the result, the nodes of the graph that it represents.
  std::vector<std::vector<int>> NodesInOrder() const;
  Graph Result() const;

 private:
  // Replaces the names of replaced nodes in the control inputs.
  static void RenameControl(OperatorDef& def, const NameTable<std::string>& renamed);
  // Returns the units in topological order; of several ready units, the unit with the least first
  // node comes first.
  std::vector<int> Order() const;
  bool IsNew(int unit) const { return Index(unit) < replacements_.size(); }
  const OperatorDef& DefOf(int unit) const {
    return IsNew(unit) ? replacements_[Index(unit)].def : view_.graph().node(units_[unit]);
  }

  const GraphView& view_;
  const std::vector<NodeReplacement>& replacements_;
  IndexedVector<int> unit_;   // by node: its unit; replacements are the first units
  IndexedVector<int> units_;  // by unit: its first node
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/partition/impl/node_sets.ipp"
#endif

#endif  // OPKIT_GRAPH_PARTITION_NODE_SETS_HPP_
