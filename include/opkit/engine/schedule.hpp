// Schedule: a graph of nodes and edges, made once, in the form that replaying it wants: nodes
// renumbered into execution order, edges that others imply removed, successors and levels in flat
// arrays. Replay runs it; the task graph and the executor of operators both sit on the two.
#ifndef OPKIT_ENGINE_SCHEDULE_HPP_
#define OPKIT_ENGINE_SCHEDULE_HPP_

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
  kStable,  // as given; a node is moved only to just before the first one that needs it
  kLevels,  // by level (longest path from a root), as given within a level
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
class Schedule {
 public:
  // Throws kOutOfRange for an edge that names no node, kInvalidArgument with the path for a cycle.
  // Edges given twice count once, the stronger (not early) of the two.
  //
  // Edges that others imply are removed: all of them in graphs of at most kExactNodes nodes; above,
  // those with a detour of two edges that is found in kSearchSteps steps an edge, so that building
  // stays linear.
  Schedule(int nodes, const ScheduleEdge* edges, int64_t edge_count, ScheduleOptions options = {});
  Schedule(int nodes, const std::vector<ScheduleEdge>& edges, ScheduleOptions options = {})
      : Schedule(nodes, edges.data(), static_cast<int64_t>(edges.size()), options) {}

  static constexpr int kMaxNodes = (1 << 30) - 1;
  static constexpr int kExactNodes = 4096;
  static constexpr int kSearchSteps = 8;

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
           static_cast<int64_t>(sizeof(Schedule));
  }

 private:
  static constexpr int kEarly = 1 << 30;
  static constexpr int kOnly = static_cast<int>(0x80000000u);
  static constexpr int kDropped = -1;

  // Predecessors by original number, and the original numbers in execution order (empty when the
  // given order is one already).
  struct Draft {
    std::vector<int> pred_begin, preds, order;
  };

  static size_t At(int i) { return static_cast<size_t>(i); }

  static void Sort(int size, Draft& draft, const ScheduleOptions& options);
  [[noreturn]] static void ThrowCycle(const std::vector<int>& path, const ScheduleOptions& options);
  void SetLevels(std::vector<int>& order, const Draft& draft, bool by_level,
                 std::vector<int>& level_of);
  void SetOrder(std::vector<int>&& order);
  bool SetEntries(const Draft& draft, const std::vector<int>& level_of);
  void DropImpliedExactly();
  void DropTriangles(const std::vector<int>& level_of);
  void Compact();

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

inline Schedule::Schedule(int nodes, const ScheduleEdge* edges, int64_t edge_count,
                          ScheduleOptions options)
    : size_(nodes), in_order_(options.in_order), edges_given_(edge_count) {
  if (nodes < 0 || nodes > kMaxNodes || edge_count > INT32_MAX - nodes) {
    Throw(ErrorCode::kOutOfRange, "expected a graph of at most ", kMaxNodes, " nodes and ",
          INT32_MAX - kMaxNodes, " edges, found ", nodes, " nodes and ", edge_count, " edges");
  }
  Draft draft;
  draft.pred_begin.assign(At(nodes) + 1, 0);
  bool sorted = true;
  for (int64_t i = 0; i < edge_count; ++i) {
    const ScheduleEdge& edge = edges[i];
    if (edge.from < 0 || edge.from >= nodes || edge.to < 0 || edge.to >= nodes) {
      Throw(ErrorCode::kOutOfRange, "expected edge ", i, " to join two of the ", nodes,
            " nodes from 0 to ", nodes - 1, ", found ", edge.from, " -> ", edge.to);
    }
    sorted = sorted && edge.from < edge.to;
    has_early_ = has_early_ || edge.early;
    ++draft.pred_begin[At(edge.to)];
  }
  int total = 0;
  for (int& begin : draft.pred_begin) begin = std::exchange(total, total + begin);
  draft.preds.resize(At(total));
  for (int64_t i = 0; i < edge_count; ++i) {
    const ScheduleEdge& edge = edges[i];
    draft.preds[At(draft.pred_begin[At(edge.to)]++)] = edge.early ? edge.from | kEarly : edge.from;
  }
  for (int i = nodes; i > 0; --i) draft.pred_begin[At(i)] = draft.pred_begin[At(i - 1)];
  draft.pred_begin[0] = 0;

  if (!sorted) Sort(nodes, draft, options);
  has_early_ = has_early_ || (in_order_ && nodes > 1);
  std::vector<int> level_of;
  SetLevels(draft.order, draft, options.order == ScheduleOrder::kLevels, level_of);
  SetOrder(std::move(draft.order));
  if (SetEntries(draft, level_of)) {
    exactly_reduced_ = nodes <= kExactNodes;
    if (exactly_reduced_) {
      DropImpliedExactly();
    } else {
      DropTriangles(level_of);
    }
  }
  Compact();
}

// Depth-first from each node in the given order, predecessors first. The stack is a path, so a
// predecessor found on it closes a cycle.
inline void Schedule::Sort(int size, Draft& draft, const ScheduleOptions& options) {
  constexpr int kNew = -1, kPlaced = -2;  // else: the next predecessor to look at
  std::vector<int> next_pred(At(size), kNew), path;
  draft.order.reserve(At(size));
  for (int first = 0; first < size; ++first) {
    if (next_pred[At(first)] != kNew) continue;
    next_pred[At(first)] = draft.pred_begin[At(first)];
    path.push_back(first);
    while (!path.empty()) {
      const int node = path.back();
      if (next_pred[At(node)] == draft.pred_begin[At(node) + 1]) {
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

OPKIT_COLD inline void Schedule::ThrowCycle(const std::vector<int>& path,
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

// Leaves in `level_of` the level of each node by its new number.
inline void Schedule::SetLevels(std::vector<int>& order, const Draft& draft, bool by_level,
                                std::vector<int>& level_of) {
  std::vector<int> level(At(size_), 0);  // by original number
  level_begin_.assign(1, 0);
  for (int i = 0; i < size_; ++i) {
    const int node = order.empty() ? i : order[At(i)];
    int deepest = in_order_ ? i : 0;
    for (int p = draft.pred_begin[At(node)]; p < draft.pred_begin[At(node) + 1]; ++p) {
      const int above = level[At(TargetOf(draft.preds[At(p)]))] + 1;
      if (above > deepest) deepest = above;
    }
    level[At(node)] = deepest;
    if (At(deepest) + 1 == level_begin_.size()) level_begin_.push_back(0);
    ++level_begin_[At(deepest) + 1];
  }
  bool in_level_order = true;
  for (int i = 1, before = 0; i < size_ && in_level_order; ++i) {
    const int now = level[At(order.empty() ? i : order[At(i)])];
    in_level_order = before <= now;
    before = now;
  }
  for (size_t l = 1; l < level_begin_.size(); ++l) {
    const int width = level_begin_[l];
    if (width > max_width_) max_width_ = width;
    const int width_class = 31 - __builtin_clz(static_cast<unsigned>(width));
    ++width_levels_[width_class];
    width_nodes_[width_class] += width;
    level_begin_[l] += level_begin_[l - 1];
  }
  if (!in_level_order) {
    std::vector<int> place(level_begin_.begin(), level_begin_.end());
    std::vector<int> sorted(At(size_));
    for (int i = 0; i < size_; ++i) {
      const int node = order.empty() ? i : order[At(i)];
      // By level, what is listed is the original number; else the new number.
      sorted[At(place[At(level[At(node)])]++)] = by_level ? node : i;
    }
    (by_level ? order : level_order_) = std::move(sorted);
  }
  if (order.empty()) {
    level_of = std::move(level);
  } else {
    level_of.resize(At(size_));
    for (int i = 0; i < size_; ++i) level_of[At(i)] = level[At(order[At(i)])];
  }
}

inline void Schedule::SetOrder(std::vector<int>&& order) {
  bool same = true;
  for (int i = 0; i < static_cast<int>(order.size()) && same; ++i) same = order[At(i)] == i;
  if (same) return;
  original_of_ = std::move(order);
  node_of_.resize(At(size_));
  for (int i = 0; i < size_; ++i) node_of_[At(original_of_[At(i)])] = i;
}

// Fills the successors of each node in ascending order. True when an edge may be implied by others:
// one that skips a level, or any when there are early ones.
inline bool Schedule::SetEntries(const Draft& draft, const std::vector<int>& level_of) {
  bool may_be_implied = false;
  entry_begin_.assign(At(size_) + 1, 0);
  for (const int pred : draft.preds) ++entry_begin_[At(node_of(TargetOf(pred)))];
  int total = 0;
  for (int i = 0; i < size_; ++i) {
    if (in_order_ && i + 1 < size_) ++entry_begin_[At(i)];
    entry_begin_[At(i)] = std::exchange(total, total + entry_begin_[At(i)]);
  }
  entry_begin_[At(size_)] = total;
  entries_.assign(At(total), kDropped);
  std::vector<int> end(entry_begin_.begin(), entry_begin_.end() - 1);
  const auto add = [&](int from, int to, int early) {
    int& last = end[At(from)];
    if (last > entry_begin_[At(from)] && TargetOf(entries_[At(last - 1)]) == to) {
      entries_[At(last - 1)] &= ~kEarly | early;  // given twice
    } else {
      entries_[At(last++)] = to | early;
    }
    may_be_implied = may_be_implied || level_of[At(to)] - level_of[At(from)] > 1;
  };
  for (int to = 0; to < size_; ++to) {
    const int original = original_of(to);
    for (int p = draft.pred_begin[At(original)]; p < draft.pred_begin[At(original) + 1]; ++p) {
      const int pred = draft.preds[At(p)];
      add(node_of(TargetOf(pred)), to, pred & kEarly);
    }
    if (in_order_ && to > 0) add(to - 1, to, kEarly);
  }
  return may_be_implied || in_order_;
}

// An edge u -> v is implied by a path of more edges from u to v. What the path promises depends on
// its first edge alone: if that is early, v only waits until u has been issued, so it implies only
// an early edge. Reachability as bit sets, from the last node to the first; successors ascend, so
// every path to v from another successor is known when v is looked at.
inline void Schedule::DropImpliedExactly() {
  const size_t words = At(size_ + 63) / 64;
  std::vector<uint64_t> reach(words * At(size_)), by_late(words);
  const auto add = [&](uint64_t* set, int node) {
    const uint64_t* from = &reach[words * At(node)];
    for (size_t w = At(node) / 64; w < words; ++w) set[w] |= from[w];
    set[At(node) / 64] |= uint64_t{1} << (node % 64);
  };
  for (int node = size_ - 1; node >= 0; --node) {
    uint64_t* all = &reach[words * At(node)];
    if (has_early_) by_late.assign(words, 0);
    for (int e = entry_begin_[At(node)]; e < entry_begin_[At(node) + 1]; ++e) {
      int& entry = entries_[At(e)];
      if (entry == kDropped) continue;
      const int target = TargetOf(entry);
      const uint64_t* implied = has_early_ && !IsEarly(entry) ? by_late.data() : all;
      if ((implied[At(target) / 64] >> (target % 64) & 1) != 0) {
        entry = kDropped;
        continue;
      }
      add(all, target);
      if (has_early_ && !IsEarly(entry)) add(by_late.data(), target);
    }
  }
}

// Only a detour whose first edge is not early counts; it implies either kind.
inline void Schedule::DropTriangles(const std::vector<int>& level_of) {
  std::vector<int> target_of(At(size_), -1);  // the node that a node was last seen to succeed
  for (int node = 0; node < size_; ++node) {
    const int begin = entry_begin_[At(node)], end = entry_begin_[At(node) + 1];
    bool any = false;
    for (int e = begin; e < end; ++e) {
      const int entry = entries_[At(e)];
      if (entry == kDropped) continue;
      const int target = TargetOf(entry);
      target_of[At(target)] = node;
      any = any || in_order_ || level_of[At(target)] - level_of[At(node)] > 1;
    }
    if (!any) continue;
    for (int e = begin; e < end; ++e) {
      const int entry = entries_[At(e)];
      if (entry == kDropped || IsEarly(entry)) continue;
      const int between = TargetOf(entry);
      const int first = entry_begin_[At(between)];
      const int last = entry_begin_[At(between) + 1];
      for (int s = first; s < last && s < first + kSearchSteps; ++s) {
        if (entries_[At(s)] == kDropped) continue;
        int& seen = target_of[At(TargetOf(entries_[At(s)]))];
        if (seen == node) seen = -1;
      }
    }
    for (int e = begin; e < end; ++e) {
      int& entry = entries_[At(e)];
      if (entry != kDropped && target_of[At(TargetOf(entry))] != node) entry = kDropped;
    }
  }
}

// Closes the gaps, puts early entries first, counts in-degrees and marks the only edges.
inline void Schedule::Compact() {
  in_degree_.assign(At(size_), 0);
  int kept = 0;
  std::vector<int> late;
  for (int node = 0; node < size_; ++node) {
    const int begin = std::exchange(entry_begin_[At(node)], kept);
    const int end = entry_begin_[At(node) + 1];
    late.clear();
    for (int e = begin; e < end; ++e) {
      const int entry = entries_[At(e)];
      if (entry == kDropped) continue;
      ++in_degree_[At(TargetOf(entry))];
      if (has_early_ && !IsEarly(entry)) {
        late.push_back(entry);
      } else {
        entries_[At(kept++)] = entry;
      }
    }
    for (const int entry : late) entries_[At(kept++)] = entry;
  }
  entry_begin_[At(size_)] = kept;
  entries_.resize(At(kept));
  if (entries_.capacity() - entries_.size() > entries_.size() / 4) entries_.shrink_to_fit();
  for (int& entry : entries_) {
    if (in_degree_[At(TargetOf(entry))] == 1) entry |= kOnly;
  }
}

}  // namespace opkit

#endif  // OPKIT_ENGINE_SCHEDULE_HPP_
