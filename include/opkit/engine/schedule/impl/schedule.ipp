// How a Schedule is made: levels, edges that others imply, the stored order, flat lists of
// successors. All of it takes linear time, except the exact removal of edges in smaller graphs.
#ifndef OPKIT_ENGINE_SCHEDULE_IMPL_SCHEDULE_IPP_
#define OPKIT_ENGINE_SCHEDULE_IMPL_SCHEDULE_IPP_

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "opkit/base/error.hpp"
#include "opkit/base/indexed_vector.hpp"
#include "opkit/engine/schedule/schedule.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Fills a Schedule from a list of edges.
class ScheduleBuilder {
 public:
  ScheduleBuilder(Schedule& schedule, const ScheduleOptions& options)
      : out_(schedule), size_(schedule.size()), options_(options) {}

  void Build(const ScheduleEdge* edges, int64_t edge_count) {
    if (size_ < 0 || size_ > Schedule::kMaxNodes || edge_count > INT32_MAX - size_)
      Throw(ErrorCode::kOutOfRange, "expected a graph of at most ", Schedule::kMaxNodes,
            " nodes and ", INT32_MAX - Schedule::kMaxNodes, " edges, found ", size_, " nodes and ",
            edge_count, " edges");
    bool sorted = true;
    for (int64_t i = 0; i < edge_count; ++i) {
      const auto& [from, to, early] = edges[i];
      if (from < 0 || from >= size_ || to < 0 || to >= size_)
        Throw(ErrorCode::kOutOfRange, "expected edge ", i, " to join two of the ", size_,
              " nodes from 0 to ", size_ - 1, ", found ", from, " -> ", to);
      sorted = sorted && from < to;
      out_.has_early_ = out_.has_early_ || early;
    }
    SetPredecessors(edges, edge_count);
    if (!sorted || options_.given) Sort();
    const bool may_be_implied = SetLevels();
    out_.exactly_reduced_ = !may_be_implied || size_ <= Schedule::kExactNodes;
    if (may_be_implied) DropImplied();
    if (!out_.in_order_) SetLevelOrder();
    SetOrder();
    SetEntries();
  }

 private:
  static constexpr int kEarly = Schedule::kEarly;
  static constexpr int kFewPreds = Schedule::kFewPreds;
  static int TargetOf(int pred) { return Schedule::TargetOf(pred); }
  static bool IsEarly(int pred) { return Schedule::IsEarly(pred); }

  // Returns the original number of the i-th node in execution order.
  int node(int i) const { return order_.empty() ? i : order_[i]; }
  int* preds_of(int node) { return preds_.data() + pred_begin_[node]; }

  void SetPredecessors(const ScheduleEdge* edges, int64_t edge_count) {
    count_.assign(Index(size_), 0);
    for (int64_t i = 0; i < edge_count; ++i) ++count_[edges[i].to];
    pred_begin_.resize(Index(size_));
    std::exclusive_scan(count_.begin(), count_.end(), pred_begin_.begin(), 0);
    std::fill(count_.begin(), count_.end(), 0);
    preds_.resize(Index(edge_count));
    for (int64_t i = 0; i < edge_count; ++i) {
      const auto& [from, to, early] = edges[i];
      preds_of(to)[count_[to]++] = early ? from | kEarly : from;
    }
  }

  // Sorts depth-first from each node in the given order, predecessors first. The stack is a path,
  // so a predecessor found on it closes a cycle.
  void Sort() {
    // Any other value: index in preds_ of the node's next predecessor.
    constexpr int kNew = -1, kPlaced = -2;
    IndexedVector<int> next_pred(Index(size_), kNew), path;
    order_.reserve(Index(size_));
    const auto enter = [&](int node) {
      next_pred[node] = pred_begin_[node];
      path.push_back(node);
    };
    for (int i = 0; i < size_; ++i) {
      const int first = options_.given ? (*options_.given)[Index(i)] : i;
      if (next_pred[first] == kNew) enter(first);
      while (!path.empty()) {
        const int node = path.back();
        int& next = next_pred[node];
        if (next == pred_begin_[node] + count_[node]) {
          next = kPlaced;
          order_.push_back(node);
          path.pop_back();
          continue;
        }
        const int pred = TargetOf(preds_[next++]);
        if (next_pred[pred] >= 0) ThrowCycle(path, pred);
        if (next_pred[pred] == kNew) enter(pred);
      }
    }
  }

  // Throws the Error for a cycle. `path` leads from a node to its predecessor and so on, to a node
  // that has `pred` as predecessor.
  [[noreturn]] OPKIT_COLD void ThrowCycle(const std::vector<int>& path, int pred) const {
    constexpr size_t kShown = 16;
    std::vector<int> cycle(std::find(path.begin(), path.end(), pred), path.end());
    cycle.push_back(pred);
    std::reverse(cycle.begin(), cycle.end());
    std::string text;
    for (size_t i = 0; i < cycle.size(); ++i) {
      if (i == kShown && cycle.size() > kShown + 2) {
        text += StrCat(" -> (", cycle.size() - kShown - 1, " more)");
        i = cycle.size() - 1;
      }
      if (i > 0) text += " -> ";
      text += options_.name ? (*options_.name)(cycle[i]) : std::to_string(cycle[i]);
    }
    Throw(ErrorCode::kInvalidArgument, "expected a graph without cycles, found ", text,
          "; remove one of these edges");
  }

  // Sets the level of every node. Returns true if an edge may be implied by others: it spans more
  // than one level, or is given twice.
  bool SetLevels() {
    std::vector<int>& level_begin = out_.level_begin_;
    bool may_be_implied = false;
    level_.assign(Index(size_), 0);
    level_begin.assign(1, 0);
    for (int i = 0; i < size_; ++i) {
      const int node = this->node(i);
      const int* const preds = preds_of(node);
      const int count = count_[node];
      int deepest = -1, shallowest = size_;
      for (int p = 0; p < count; ++p) {
        const int above = level_[TargetOf(preds[p])];
        deepest = (std::max)(deepest, above);
        shallowest = (std::min)(shallowest, above);
        for (int q = 0; q < p && p < kFewPreds; ++q)
          may_be_implied = may_be_implied || TargetOf(preds[p]) == TargetOf(preds[q]);
      }
      may_be_implied = may_be_implied || shallowest < deepest || count > kFewPreds;
      level_[node] = ++deepest;
      if (Index(deepest) + 1 == level_begin.size()) level_begin.push_back(0);
      ++level_begin[Index(deepest) + 1];
    }
    if (out_.in_order_) {
      level_begin.assign(Index(size_) + 1, 1);
      level_begin[0] = 0;
    }
    for (size_t l = 1; l < level_begin.size(); ++l) {
      const int width = level_begin[l];
      out_.max_width_ = (std::max)(out_.max_width_, width);
      const int width_class = static_cast<int>(std::bit_width(static_cast<unsigned>(width))) - 1;
      ++out_.width_levels_[width_class];
      out_.width_nodes_[width_class] += width;
      level_begin[l] += level_begin[l - 1];
    }
    return may_be_implied;
  }

  void SetLevelOrder() {
    bool sorted = true;
    for (int i = 1; i < size_ && sorted; ++i) sorted = level_[node(i - 1)] <= level_[node(i)];
    if (sorted) return;
    const bool by_level = options_.order == ScheduleOrder::kLevels ||
                          (options_.order == ScheduleOrder::kLevelsIfWide &&
                           size_ / Schedule::kWideLevel >= out_.levels());
    IndexedVector<int> place(out_.level_begin_), order(Index(size_));
    for (int i = 0; i < size_; ++i) {
      const int node = this->node(i);
      // Original numbers where the nodes are to be stored by level, else numbers in stored order.
      order[place[level_[node]]++] = by_level ? node : i;
    }
    (by_level ? order_ : out_.level_order_) = std::move(order);
  }

  // Removes implied edges. An edge u -> v is implied by a path of more edges from u to v. What the
  // path implies depends on its first edge alone: if that edge is early, v only waits until u has
  // been issued, so the path implies only an early edge. The search starts at v: the path's last
  // edge comes from another predecessor of v that u leads to.
  void DropImplied() {
    std::vector<int> seen(Index(size_), -1);
    if (size_ > Schedule::kExactNodes) {
      for (int i = 0; i < size_; ++i) {
        if (count_[node(i)] < 2) continue;
        DropTwins(node(i), seen);
        DropTriangles(node(i));
      }
      return;
    }
    // Bit sets of the nodes that lead to a node: `any` of them, and `late`, those with a first edge
    // that is not early.
    const bool has_early = out_.has_early_;
    const size_t words = Index(size_ + 63) / 64;
    std::vector<uint64_t> any(words * Index(size_)), late(has_early ? words * Index(size_) : 0);
    const auto bit = [](int node) { return uint64_t{1} << (node % 64); };
    for (int i = 0; i < size_; ++i) {
      const int node = this->node(i);
      DropTwins(node, seen);
      int* const preds = preds_of(node);
      int& count = count_[node];
      uint64_t* const to_any = &any[words * Index(node)];
      uint64_t* const to_late = has_early ? &late[words * Index(node)] : to_any;
      for (int p = 0; p < count; ++p) {
        const size_t from = words * Index(TargetOf(preds[p]));
        for (size_t w = 0; w < words; ++w) to_any[w] |= any[from + w];
        if (!has_early) continue;
        for (size_t w = 0; w < words; ++w) to_late[w] |= late[from + w];
      }
      const int* const end = std::remove_if(preds, preds + count, [&](int entry) {
        const int pred = TargetOf(entry);
        // Two statements, because g++ 12 miscompiles the single expression under UBSan.
        const uint64_t* const implied = IsEarly(entry) ? to_any : to_late;
        return (implied[Index(pred) / 64] & bit(pred)) != 0;
      });
      count = static_cast<int>(end - preds);
      for (int p = 0; p < count; ++p) {
        const int pred = TargetOf(preds[p]);
        to_any[Index(pred) / 64] |= bit(pred);
        if (!IsEarly(preds[p])) to_late[Index(pred) / 64] |= bit(pred);
      }
    }
  }

  // Keeps the stronger one of edges given twice.
  void DropTwins(int node, std::vector<int>& seen) {
    int* const preds = preds_of(node);
    int& count = count_[node];
    int kept = 0;
    for (int p = 0; p < count; ++p) {
      const int pred = TargetOf(preds[p]);
      int twin = kept;
      if (count <= kFewPreds) {
        for (twin = 0; twin < kept && TargetOf(preds[twin]) != pred;) ++twin;
      } else if (seen[Index(pred)] >= pred_begin_[node]) {
        twin = seen[Index(pred)] - pred_begin_[node];
        // The mark may belong to another node, whose predecessors lie behind these.
        if (twin >= kept || TargetOf(preds[twin]) != pred) twin = kept;
      }
      if (twin < kept) {
        if (!IsEarly(preds[p])) preds[twin] = pred;
        continue;
      }
      if (count > kFewPreds) seen[Index(pred)] = pred_begin_[node] + kept;
      preds[kept++] = preds[p];
    }
    count = kept;
  }

  // Removes predecessors of `node` that are also among the first predecessors of its first
  // predecessors.
  void DropTriangles(int node) {
    int* const preds = preds_of(node);
    int& count = count_[node];
    const int looked_at = (std::min)(count, kFewPreds);
    unsigned implied = 0;  // bit p: preds[p]
    for (int p = 0; p < looked_at; ++p) {
      const int between = TargetOf(preds[p]);
      const int steps = (std::min)(count_[between], kFewPreds);
      const int* const before = preds_of(between);
      for (int s = 0; s < steps; ++s) {
        for (int q = 0; q < looked_at; ++q)
          if (TargetOf(preds[q]) == TargetOf(before[s]) &&
              (IsEarly(preds[q]) || !IsEarly(before[s])))
            implied |= 1u << q;
      }
    }
    if (implied == 0) return;
    int kept = 0;
    for (int p = 0; p < count; ++p)
      if (p >= looked_at || (implied >> p & 1) == 0) preds[kept++] = preds[p];
    count = kept;
  }

  void SetOrder() {
    if (std::is_sorted(order_.begin(), order_.end())) return;
    out_.original_of_ = std::move(order_);
    out_.node_of_.resize(Index(size_));
    for (int i = 0; i < size_; ++i) out_.node_of_[Index(out_.original_of(i))] = i;
  }

  // Fills the successors of each node, early ones first, each kind in ascending order.
  void SetEntries() {
    out_.has_early_ = out_.has_early_ || (out_.in_order_ && size_ > 1);
    out_.in_degree_.resize(Index(size_));
    out_.entry_begin_.assign(Index(size_) + 1, 0);
    // Calls f(from, to, early) for every edge, `to` ascending.
    const auto for_each = [&](auto&& f) {
      for (int to = 0; to < size_; ++to) {
        const int original = out_.original_of(to);
        const int* const preds = preds_of(original);
        bool follows = false;  // there is an edge from the node before
        for (int p = 0; p < count_[original]; ++p) {
          const int from = out_.node_of(TargetOf(preds[p]));
          follows = follows || from == to - 1;
          f(from, to, IsEarly(preds[p]));
        }
        if (out_.in_order_ && to > 0 && !follows) f(to - 1, to, true);
      }
    };
    for_each([&](int from, int to, bool) {
      ++out_.in_degree_[Index(to)];
      ++out_.entry_begin_[Index(from)];
    });
    int total = 0;
    for (int& begin : out_.entry_begin_) begin = std::exchange(total, total + begin);
    out_.entries_.resize(Index(total));
    IndexedVector<int> end(out_.entry_begin_.begin(), out_.entry_begin_.end() - 1);
    for (const bool early : {true, false}) {
      if (early && !out_.has_early_) continue;
      for_each([&](int from, int to, bool is_early) {
        if (is_early != early) return;
        const int only = out_.in_degree_[Index(to)] == 1 ? Schedule::kOnly : 0;
        out_.entries_[Index(end[from]++)] = to | (early ? kEarly : 0) | only;
      });
    }
  }

  Schedule& out_;
  const int size_;
  const ScheduleOptions& options_;
  // Predecessors, by original number: those of node n are the count_[n] entries of preds_ from
  // preds_[pred_begin_[n]] on. An entry of an early edge has the bit kEarly.
  IndexedVector<int> pred_begin_, preds_, count_, level_;
  IndexedVector<int>
      order_;  // original numbers in execution order; empty when the given order is one
};

}  // namespace detail

OPKIT_INLINE Schedule::Schedule(int nodes, const ScheduleEdge* edges, int64_t edge_count,
                                ScheduleOptions options)
    : size_(nodes), in_order_(options.in_order), edges_given_(edge_count) {
  detail::ScheduleBuilder(*this, options).Build(edges, edge_count);
}

}}  // namespace opkit

#endif  // OPKIT_ENGINE_SCHEDULE_IMPL_SCHEDULE_IPP_
