// Schedule: a graph of nodes and edges, made once, in the form that replaying it wants: nodes
// renumbered into execution order, edges that others imply removed, successors and levels in flat
// arrays. Replay runs it; the task graph and the executor of operators both sit on the two.
#ifndef OPKIT_ENGINE_SCHEDULE_SCHEDULE_HPP_
#define OPKIT_ENGINE_SCHEDULE_SCHEDULE_HPP_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "opkit/base/error.hpp"
#include "opkit/base/function_ref.hpp"

namespace opkit::inline OPKIT_ABI {

// `to` starts after `from` has completed or, when `early`, as soon as the body of `from` has
// returned: its work has been issued to the device that `to` issues to.
struct ScheduleEdge {
  int from = 0;
  int to = 0;
  bool early = false;
};

enum class ScheduleOrder {
  kStable,        // as given; a node is moved only to just before the first one that needs it
  kLevels,        // by level (longest path from a root), as given within a level
  kLevelsIfWide,  // kLevels when a level has kWideLevel nodes on average, else kStable
};

struct ScheduleOptions {
  ScheduleOrder order = ScheduleOrder::kStable;
  // Adds an early edge from each node to the next in the stable order, so that bodies are called in
  // that order whatever the mode is. Only completions may still overlap.
  bool in_order = false;
  // What a cycle's message calls a node; its number when null.
  const FunctionRef<std::string(int)>* name = nullptr;
};

// Immutable, so any number of threads may replay one. Takes 12 to 28 bytes a node and 4 an edge.
//
// "Node" is a number in execution order from here on: edges lead from a lower node to a higher one.
// node_of and original_of translate.
//
// A template, as is what runs it, so that programs without graphs do not compile it.
template <class Edge>
class BasicSchedule {
 public:
  // Throws kOutOfRange for an edge that names no node, kInvalidArgument with the path for a cycle.
  // Edges given twice count once, the stronger (not early) of the two.
  //
  // Edges that others imply are removed: all of them in graphs of at most kExactNodes nodes; above,
  // those with a detour of two edges, looked for among the first kFewPreds predecessors of a node
  // and of each of these, so that building stays linear.
  BasicSchedule(int nodes, const Edge* edges, int64_t edge_count, ScheduleOptions options = {});
  BasicSchedule(int nodes, const std::vector<Edge>& edges, ScheduleOptions options = {})
      : BasicSchedule(nodes, edges.data(), static_cast<int64_t>(edges.size()), options) {}

  static constexpr int kMaxNodes = (1 << 30) - 1;
  static constexpr int kExactNodes = 4096;
  static constexpr int kFewPreds = 8;
  static constexpr int kWideLevel = 256;

  int size() const { return size_; }
  int node_of(int original) const { return node_of_.empty() ? original : node_of_[At(original)]; }
  int original_of(int node) const { return original_of_.empty() ? node : original_of_[At(node)]; }

  // Edges that a node waits for, after removal.
  int in_degree(int node) const { return in_degree_[At(node)]; }
  const std::vector<int>& in_degrees() const { return in_degree_; }

  // Successors of node n are entries()[entry_begin()[n] .. entry_begin()[n + 1]), early ones first.
  const std::vector<int>& entry_begin() const { return entry_begin_; }
  const std::vector<int>& entries() const { return entries_; }
  static int TargetOf(int entry) { return entry & kMaxNodes; }
  static bool IsEarly(int entry) { return (entry & kEarly) != 0; }
  // Whether the target waits for this edge alone.
  static bool IsOnly(int entry) { return entry < 0; }

  // Nodes of level l are level_node(level_begin()[l]) .. level_node(level_begin()[l + 1] - 1);
  // those of level 0 wait for nothing.
  int levels() const { return static_cast<int>(level_begin_.size()) - 1; }
  const std::vector<int>& level_begin() const { return level_begin_; }
  int level_node(int position) const {
    return level_order_.empty() ? position : level_order_[At(position)];
  }
  // Empty when the nodes lie in level order already.
  const std::vector<int>& level_order() const { return level_order_; }
  int roots() const { return size_ == 0 ? 0 : level_begin_[1]; }

  bool in_order() const { return in_order_; }
  bool has_early() const { return has_early_; }
  int64_t edges_given() const { return edges_given_; }
  int64_t edges_kept() const { return static_cast<int64_t>(entries_.size()); }
  bool exactly_reduced() const { return exactly_reduced_; }
  int max_width() const { return max_width_; }
  // How many levels, and nodes in them, have a width in [2^i, 2^(i+1)).
  static constexpr int kWidthClasses = 30;
  int levels_of_width(int i) const { return width_levels_[i]; }
  int nodes_of_width(int i) const { return width_nodes_[i]; }

  int64_t bytes() const {
    const auto of = [](const std::vector<int>& v) { return static_cast<int64_t>(v.capacity()); };
    return 4 * (of(node_of_) + of(original_of_) + of(in_degree_) + of(entry_begin_) + of(entries_) +
                of(level_begin_) + of(level_order_)) +
           static_cast<int64_t>(sizeof(BasicSchedule));
  }

 private:
  static constexpr int kEarly = 1 << 30;
  static constexpr int kOnly = static_cast<int>(0x80000000u);

  // Predecessors by original number: those of node n are preds[pred_begin[n] ..], count[n] of them.
  // `order` holds original numbers in execution order, or nothing when the given order is one.
  struct Draft {
    std::vector<int> pred_begin, preds, count, level, order;
    int node(int i) const { return order.empty() ? i : order[At(i)]; }
  };

  static size_t At(int i) { return static_cast<size_t>(i); }

  static void SetPredecessors(int size, const Edge* edges, int64_t edge_count, Draft& draft);
  static void Sort(int size, Draft& draft, const ScheduleOptions& options);
  [[noreturn]] static void ThrowCycle(const std::vector<int>& path, const ScheduleOptions& options);
  bool SetLevels(Draft& draft);
  void SetLevelOrder(Draft& draft, ScheduleOrder wanted);
  void DropImplied(Draft& draft);
  static void DropTriangles(Draft& draft, int node);
  static void DropTwins(Draft& draft, int node, std::vector<int>& seen);
  void SetOrder(std::vector<int>&& order);
  void SetEntries(const Draft& draft);

  int size_ = 0;
  int max_width_ = 0;
  bool in_order_ = false;
  bool has_early_ = false;
  bool exactly_reduced_ = true;
  int64_t edges_given_ = 0;
  std::vector<int> node_of_, original_of_;  // empty: the same number
  std::vector<int> in_degree_, entry_begin_, entries_;
  std::vector<int> level_begin_, level_order_;
  int width_levels_[kWidthClasses] = {};
  int width_nodes_[kWidthClasses] = {};
};
using Schedule = BasicSchedule<ScheduleEdge>;

template <class Edge>
inline BasicSchedule<Edge>::BasicSchedule(int nodes, const Edge* edges, int64_t edge_count,
                                          ScheduleOptions options)
    : size_(nodes), in_order_(options.in_order), edges_given_(edge_count) {
  if (nodes < 0 || nodes > kMaxNodes || edge_count > INT32_MAX - nodes) {
    Throw(ErrorCode::kOutOfRange, "expected a graph of at most ", kMaxNodes, " nodes and ",
          INT32_MAX - kMaxNodes, " edges, found ", nodes, " nodes and ", edge_count, " edges");
  }
  bool sorted = true;
  for (int64_t i = 0; i < edge_count; ++i) {
    const Edge& edge = edges[i];
    if (edge.from < 0 || edge.from >= nodes || edge.to < 0 || edge.to >= nodes) {
      Throw(ErrorCode::kOutOfRange, "expected edge ", i, " to join two of the ", nodes,
            " nodes from 0 to ", nodes - 1, ", found ", edge.from, " -> ", edge.to);
    }
    sorted = sorted && edge.from < edge.to;
    has_early_ = has_early_ || edge.early;
  }
  Draft draft;
  SetPredecessors(nodes, edges, edge_count, draft);
  if (!sorted) Sort(nodes, draft, options);
  const bool may_be_implied = SetLevels(draft);
  exactly_reduced_ = !may_be_implied || nodes <= kExactNodes;
  if (may_be_implied) DropImplied(draft);
  if (!in_order_) SetLevelOrder(draft, options.order);
  SetOrder(std::move(draft.order));
  SetEntries(draft);
}

template <class Edge>
inline void BasicSchedule<Edge>::SetPredecessors(int size, const Edge* edges, int64_t edge_count,
                                                 Draft& draft) {
  draft.count.assign(At(size), 0);
  for (int64_t i = 0; i < edge_count; ++i) ++draft.count[At(edges[i].to)];
  draft.pred_begin.resize(At(size));
  int total = 0;
  for (int i = 0; i < size; ++i) {
    draft.pred_begin[At(i)] = total;
    total += std::exchange(draft.count[At(i)], 0);
  }
  draft.preds.resize(At(total));
  for (int64_t i = 0; i < edge_count; ++i) {
    const int to = edges[i].to;
    draft.preds[At(draft.pred_begin[At(to)] + draft.count[At(to)]++)] =
        edges[i].early ? edges[i].from | kEarly : edges[i].from;
  }
}

// Depth-first from each node in the given order, predecessors first. The stack is a path, so a
// predecessor found on it closes a cycle.
template <class Edge>
inline void BasicSchedule<Edge>::Sort(int size, Draft& draft, const ScheduleOptions& options) {
  constexpr int kNew = -1, kPlaced = -2;  // else: the next predecessor to look at
  std::vector<int> next_pred(At(size), kNew), path;
  draft.order.reserve(At(size));
  for (int first = 0; first < size; ++first) {
    if (next_pred[At(first)] != kNew) continue;
    next_pred[At(first)] = draft.pred_begin[At(first)];
    path.push_back(first);
    while (!path.empty()) {
      const int node = path.back();
      if (next_pred[At(node)] == draft.pred_begin[At(node)] + draft.count[At(node)]) {
        next_pred[At(node)] = kPlaced;
        draft.order.push_back(node);
        path.pop_back();
        continue;
      }
      const int pred = TargetOf(draft.preds[At(next_pred[At(node)]++)]);
      if (next_pred[At(pred)] >= 0) {
        size_t start = path.size() - 1;
        while (path[start] != pred) --start;
        std::vector<int> cycle(1, pred);  // the path leads from a node to what it needs
        for (size_t i = path.size(); i-- > start;) cycle.push_back(path[i]);
        ThrowCycle(cycle, options);
      }
      if (next_pred[At(pred)] == kNew) {
        next_pred[At(pred)] = draft.pred_begin[At(pred)];
        path.push_back(pred);
      }
    }
  }
}

template <class Edge>
OPKIT_COLD inline void BasicSchedule<Edge>::ThrowCycle(const std::vector<int>& path,
                                                       const ScheduleOptions& options) {
  constexpr size_t kShown = 16;
  std::string text;
  for (size_t i = 0; i < path.size(); ++i) {
    if (i == kShown && path.size() > kShown + 2) {
      text += StrCat(" -> (", path.size() - kShown - 1, " more)");
      i = path.size() - 1;
    }
    if (i > 0) text += " -> ";
    text += options.name != nullptr ? (*options.name)(path[i]) : std::to_string(path[i]);
  }
  Throw(ErrorCode::kInvalidArgument, "expected a graph without cycles, found ", text,
        "; remove one of these edges");
}

// True when an edge may be implied by others: it spans two levels, or is given twice.
template <class Edge>
inline bool BasicSchedule<Edge>::SetLevels(Draft& draft) {
  bool may_be_implied = false;
  draft.level.assign(At(size_), 0);
  level_begin_.assign(1, 0);
  for (int i = 0; i < size_; ++i) {
    const int node = draft.node(i);
    const int* const preds = draft.preds.data() + draft.pred_begin[At(node)];
    int deepest = -1, shallowest = size_;
    for (int p = 0; p < draft.count[At(node)]; ++p) {
      const int above = draft.level[At(TargetOf(preds[p]))];
      if (above > deepest) deepest = above;
      if (above < shallowest) shallowest = above;
      for (int q = 0; q < p && p < kFewPreds; ++q) {
        may_be_implied = may_be_implied || TargetOf(preds[p]) == TargetOf(preds[q]);
      }
    }
    may_be_implied = may_be_implied || shallowest < deepest || draft.count[At(node)] > kFewPreds;
    draft.level[At(node)] = ++deepest;
    if (At(deepest) + 1 == level_begin_.size()) level_begin_.push_back(0);
    ++level_begin_[At(deepest) + 1];
  }
  if (in_order_) {
    level_begin_.resize(At(size_) + 1);
    for (int i = 0; i <= size_; ++i) level_begin_[At(i)] = i > 0 ? 1 : 0;
  }
  for (size_t l = 1; l < level_begin_.size(); ++l) {
    const int width = level_begin_[l];
    if (width > max_width_) max_width_ = width;
    const int width_class = 31 - __builtin_clz(static_cast<unsigned>(width));
    ++width_levels_[width_class];
    width_nodes_[width_class] += width;
    level_begin_[l] += level_begin_[l - 1];
  }
  return may_be_implied;
}

template <class Edge>
inline void BasicSchedule<Edge>::SetLevelOrder(Draft& draft, ScheduleOrder wanted) {
  bool sorted = true;
  for (int i = 1; i < size_ && sorted; ++i) {
    sorted = draft.level[At(draft.node(i - 1))] <= draft.level[At(draft.node(i))];
  }
  if (sorted) return;
  const bool by_level = wanted == ScheduleOrder::kLevels ||
                        (wanted == ScheduleOrder::kLevelsIfWide && size_ / kWideLevel >= levels());
  std::vector<int> place(level_begin_), order(At(size_));
  for (int i = 0; i < size_; ++i) {
    const int node = draft.node(i);
    // Stored by level, what is listed is the original number; else the new one.
    order[At(place[At(draft.level[At(node)])]++)] = by_level ? node : i;
  }
  (by_level ? draft.order : level_order_) = std::move(order);
}

// An edge u -> v is implied by a path of more edges from u to v. What the path promises depends on
// its first edge alone: if that is early, v only waits until u has been issued, so it implies only
// an early edge. Found from v: the path's last edge comes from another predecessor of v that u
// leads to.
template <class Edge>
inline void BasicSchedule<Edge>::DropImplied(Draft& draft) {
  std::vector<int> seen(At(size_), -1);
  if (size_ > kExactNodes) {
    for (int i = 0; i < size_; ++i) {
      const int node = draft.node(i);
      if (draft.count[At(node)] < 2) continue;
      DropTwins(draft, node, seen);
      DropTriangles(draft, node);
    }
    return;
  }
  // Bit sets of the nodes that lead to a node: `any`, or with a first edge that is not early.
  const size_t words = At(size_ + 63) / 64;
  std::vector<uint64_t> any(words * At(size_)), late(has_early_ ? words * At(size_) : 0);
  const auto bit = [](int node) { return uint64_t{1} << (node % 64); };
  for (int i = 0; i < size_; ++i) {
    const int node = draft.node(i);
    DropTwins(draft, node, seen);
    int* const preds = draft.preds.data() + draft.pred_begin[At(node)];
    int& count = draft.count[At(node)];
    uint64_t* const to_any = &any[words * At(node)];
    uint64_t* const to_late = has_early_ ? &late[words * At(node)] : to_any;
    for (int p = 0; p < count; ++p) {
      const size_t from = words * At(TargetOf(preds[p]));
      for (size_t w = 0; w < words; ++w) to_any[w] |= any[from + w];
      if (!has_early_) continue;
      for (size_t w = 0; w < words; ++w) to_late[w] |= late[from + w];
    }
    int kept = 0;
    for (int p = 0; p < count; ++p) {
      const int pred = TargetOf(preds[p]);
      const uint64_t* implied = IsEarly(preds[p]) ? to_any : to_late;
      if ((implied[At(pred) / 64] & bit(pred)) == 0) preds[kept++] = preds[p];
    }
    count = kept;
    for (int p = 0; p < kept; ++p) {
      const int pred = TargetOf(preds[p]);
      to_any[At(pred) / 64] |= bit(pred);
      if (!IsEarly(preds[p])) to_late[At(pred) / 64] |= bit(pred);
    }
  }
}

// Of an edge given twice the stronger stays.
template <class Edge>
inline void BasicSchedule<Edge>::DropTwins(Draft& draft, int node, std::vector<int>& seen) {
  int* const preds = draft.preds.data() + draft.pred_begin[At(node)];
  int& count = draft.count[At(node)];
  int kept = 0;
  for (int p = 0; p < count; ++p) {
    const int pred = TargetOf(preds[p]);
    int twin = kept;
    if (count <= kFewPreds) {
      for (twin = 0; twin < kept && TargetOf(preds[twin]) != pred;) ++twin;
    } else if (seen[At(pred)] >= draft.pred_begin[At(node)]) {
      twin = seen[At(pred)] - draft.pred_begin[At(node)];
      // The mark may be another node's, whose predecessors lie behind.
      if (twin >= kept || TargetOf(preds[twin]) != pred) twin = kept;
    }
    if (twin < kept) {
      if (!IsEarly(preds[p])) preds[twin] = pred;
      continue;
    }
    if (count > kFewPreds) seen[At(pred)] = draft.pred_begin[At(node)] + kept;
    preds[kept++] = preds[p];
  }
  count = kept;
}

// Looks for predecessors of `node` among the first predecessors of its first predecessors.
template <class Edge>
inline void BasicSchedule<Edge>::DropTriangles(Draft& draft, int node) {
  int* const preds = draft.preds.data() + draft.pred_begin[At(node)];
  int& count = draft.count[At(node)];
  const int looked_at = count < kFewPreds ? count : kFewPreds;
  unsigned implied = 0;  // bit p: preds[p]
  for (int p = 0; p < looked_at; ++p) {
    const int between = TargetOf(preds[p]);
    const int steps = draft.count[At(between)] < kFewPreds ? draft.count[At(between)] : kFewPreds;
    const int* const before = draft.preds.data() + draft.pred_begin[At(between)];
    for (int s = 0; s < steps; ++s) {
      for (int q = 0; q < looked_at; ++q) {
        if (TargetOf(preds[q]) == TargetOf(before[s]) && (IsEarly(preds[q]) || !IsEarly(before[s])))
          implied |= 1u << q;
      }
    }
  }
  if (implied == 0) return;
  int kept = 0;
  for (int p = 0; p < count; ++p) {
    if (p >= looked_at || (implied >> p & 1) == 0) preds[kept++] = preds[p];
  }
  count = kept;
}

template <class Edge>
inline void BasicSchedule<Edge>::SetOrder(std::vector<int>&& order) {
  bool same = true;
  for (int i = 0; i < static_cast<int>(order.size()) && same; ++i) same = order[At(i)] == i;
  if (same) return;
  original_of_ = std::move(order);
  node_of_.resize(At(size_));
  for (int i = 0; i < size_; ++i) node_of_[At(original_of_[At(i)])] = i;
}

// The successors of each node, early ones first, each kind in ascending order.
template <class Edge>
inline void BasicSchedule<Edge>::SetEntries(const Draft& draft) {
  has_early_ = has_early_ || (in_order_ && size_ > 1);
  in_degree_.resize(At(size_));
  entry_begin_.assign(At(size_) + 1, 0);
  // Calls f(from, to, whether early) for every edge, `to` ascending.
  const auto for_each = [&](auto&& f) {
    for (int to = 0; to < size_; ++to) {
      const int original = original_of(to);
      const int* const preds = draft.preds.data() + draft.pred_begin[At(original)];
      bool follows = false;  // the node before
      for (int p = 0; p < draft.count[At(original)]; ++p) {
        const int from = node_of(TargetOf(preds[p]));
        follows = follows || from == to - 1;
        f(from, to, IsEarly(preds[p]));
      }
      if (in_order_ && to > 0 && !follows) f(to - 1, to, true);
    }
  };
  for_each([&](int from, int to, bool) {
    ++in_degree_[At(to)];
    ++entry_begin_[At(from)];
  });
  int total = 0;
  for (int& begin : entry_begin_) begin = std::exchange(total, total + begin);
  entries_.resize(At(total));
  std::vector<int> end(entry_begin_.begin(), entry_begin_.end() - 1);
  for (const bool early : {true, false}) {
    if (early && !has_early_) continue;
    for_each([&](int from, int to, bool is_early) {
      if (is_early != early) return;
      const int only = in_degree_[At(to)] == 1 ? kOnly : 0;
      entries_[At(end[At(from)]++)] = to | (early ? kEarly : 0) | only;
    });
  }
}

}  // namespace opkit

#endif  // OPKIT_ENGINE_SCHEDULE_SCHEDULE_HPP_
