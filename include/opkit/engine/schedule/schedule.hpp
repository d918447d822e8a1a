// Schedule: a graph of nodes and edges, made once, in the form that Replay needs: nodes renumbered
// into execution order, edges that others imply removed, successors and levels in flat arrays.
// Replay runs it; the task graph and the executor of operators use both.
#ifndef OPKIT_ENGINE_SCHEDULE_SCHEDULE_HPP_
#define OPKIT_ENGINE_SCHEDULE_SCHEDULE_HPP_

#include <cstdint>
#include <string>
#include <vector>

#include "opkit/base/function_ref.hpp"
#include "opkit/base/index.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// `to` starts after `from` has completed or, when `early`, as soon as the body of `from` has
// returned: its work has been issued to the device that `to` issues to.
struct ScheduleEdge {
  int from = 0;
  int to = 0;
  bool early = false;
};

enum class ScheduleOrder {
  // The given order. A node that stands behind a node that needs it is moved to just before that
  // node.
  kStable,
  kLevels,        // by level (longest path from a root); the given order within a level
  kLevelsIfWide,  // kLevels when a level has kWideLevel nodes on average, else kStable
};

struct ScheduleOptions {
  ScheduleOrder order = ScheduleOrder::kStable;
  // Adds an early edge (see ScheduleEdge) from each node to the next in the stable order. Every
  // mode then calls the bodies in that order; only pending nodes may still complete in another
  // order.
  bool in_order = false;
  // The given order of the nodes, each once; null: by number.
  const std::vector<int>* given = nullptr;
  // Returns the name of a node for the message about a cycle; null: the node's number.
  const FunctionRef<std::string(int)>* name = nullptr;
};

namespace detail {
class ScheduleBuilder;
}  // namespace detail

// Immutable, so any number of threads may replay one. Takes 12 to 28 bytes a node and 4 an edge.
//
// "Node" is a number in execution order from here on: edges lead from a lower node to a higher one.
// node_of and original_of translate.
class Schedule {
 public:
  // Throws kOutOfRange for an edge that names no node, kInvalidArgument with the path for a cycle.
  // Edges given twice count once, the stronger (not early) of the two.
  //
  // Edges that others imply are removed: all of them in graphs of at most kExactNodes nodes. In
  // larger graphs only edges with a detour of two edges are removed. They are looked for among the
  // first kFewPreds predecessors of a node and of each of these, so that building stays linear.
  Schedule(int nodes, const ScheduleEdge* edges, int64_t edge_count, ScheduleOptions options = {});
  Schedule(int nodes, const std::vector<ScheduleEdge>& edges, ScheduleOptions options = {})
      : Schedule(nodes, edges.data(), static_cast<int64_t>(edges.size()), options) {}

  static constexpr int kMaxNodes = (1 << 30) - 1;
  static constexpr int kExactNodes = 4096;
  static constexpr int kFewPreds = 8;
  static constexpr int kWideLevel = 256;

  int size() const { return size_; }
  int node_of(int original) const {
    return node_of_.empty() ? original : node_of_[detail::Index(original)];
  }
  int original_of(int node) const {
    return original_of_.empty() ? node : original_of_[detail::Index(node)];
  }

  // Returns the number of edges that a node waits for, without those that were removed.
  int in_degree(int node) const { return in_degree_[detail::Index(node)]; }
  const std::vector<int>& in_degrees() const { return in_degree_; }

  // Successors of node n are entries()[entry_begin()[n] .. entry_begin()[n + 1]), early ones first.
  const std::vector<int>& entry_begin() const { return entry_begin_; }
  const std::vector<int>& entries() const { return entries_; }
  static int TargetOf(int entry) { return entry & kMaxNodes; }
  static bool IsEarly(int entry) { return (entry & kEarly) != 0; }
  // True if the target waits for this edge alone.
  static bool IsOnly(int entry) { return entry < 0; }

  // Nodes of level l are level_node(level_begin()[l]) .. level_node(level_begin()[l + 1] - 1);
  // those of level 0 wait for nothing.
  int levels() const { return static_cast<int>(level_begin_.size()) - 1; }
  const std::vector<int>& level_begin() const { return level_begin_; }
  int level_node(int position) const {
    return level_order_.empty() ? position : level_order_[detail::Index(position)];
  }
  // Returns the nodes in level order; empty if they are stored in that order.
  const std::vector<int>& level_order() const { return level_order_; }
  int roots() const { return size_ == 0 ? 0 : level_begin_[1]; }

  bool in_order() const { return in_order_; }
  bool has_early() const { return has_early_; }
  int64_t edges_given() const { return edges_given_; }
  int64_t edges_kept() const { return static_cast<int64_t>(entries_.size()); }
  bool exactly_reduced() const { return exactly_reduced_; }
  int max_width() const { return max_width_; }
  // Return the number of levels whose width is in [2^i, 2^(i+1)), and the number of nodes in these
  // levels.
  static constexpr int kWidthClasses = 30;
  int levels_of_width(int i) const { return width_levels_[i]; }
  int nodes_of_width(int i) const { return width_nodes_[i]; }

 private:
  friend class detail::ScheduleBuilder;

  static constexpr int kEarly = 1 << 30;
  static constexpr int kOnly = static_cast<int>(0x80000000u);

  int size_ = 0;
  int max_width_ = 0;
  bool in_order_ = false;
  bool has_early_ = false;
  bool exactly_reduced_ = true;
  int64_t edges_given_ = 0;
  std::vector<int> node_of_, original_of_;  // empty where all numbers are the same
  std::vector<int> in_degree_, entry_begin_, entries_;
  std::vector<int> level_begin_, level_order_;
  int width_levels_[kWidthClasses] = {};
  int width_nodes_[kWidthClasses] = {};
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/engine/schedule/impl/schedule.ipp"
#endif

#endif  // OPKIT_ENGINE_SCHEDULE_SCHEDULE_HPP_
