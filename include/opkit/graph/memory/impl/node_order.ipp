// Definitions of PeakBytes and OrderForFootprint: list scheduling by the live bytes that a node
// adds.
#ifndef OPKIT_GRAPH_MEMORY_IMPL_NODE_ORDER_IPP_
#define OPKIT_GRAPH_MEMORY_IMPL_NODE_ORDER_IPP_

#include <algorithm>

#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/memory/node_order.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Counts the bytes that are live while nodes run one after the other.
class LiveBytes {
 public:
  LiveBytes(const GraphView& view, FunctionRef<int64_t(int value)> bytes)
      : view_(view), bytes_(bytes) {
    for (int value = 0; value < view.num_values(); ++value)
      uses_.push_back(static_cast<int>(view.consumers(value).size()) +
                      (view.IsOutput(value) ? 1 : 0));
  }
  // Returns by how much the live bytes grow once the node has run.
  int64_t Growth(int node) const {
    int64_t growth = Made(node);
    ForEachInput(node, [&](int value) {
      if (uses_[value] == 1) growth -= bytes_(value);
    });
    return growth;
  }
  void Run(int node) {
    live_ += Made(node);
    peak_ = (std::max)(peak_, live_);
    ForEachInput(node, [&](int value) {
      if (--uses_[value] == 0) live_ -= bytes_(value);
    });
    for (const int value : view_.outputs(node))
      if (value >= 0 && uses_[value] == 0) live_ -= bytes_(value);
  }
  int64_t peak() const { return peak_; }

 private:
  int64_t Made(int node) const {
    int64_t made = 0;
    for (const int value : view_.outputs(node))
      if (value >= 0 && view_.producer(value) == node) made += bytes_(value);
    return made;
  }
  // Calls f for each distinct input of the node.
  template <class F>
  void ForEachInput(int node, F f) const {
    const auto inputs = view_.inputs(node);
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i] >= 0 && std::find(inputs.begin(), inputs.begin() + static_cast<long>(i),
                                      inputs[i]) == inputs.begin() + static_cast<long>(i))
        f(inputs[i]);
  }

  const GraphView& view_;
  const FunctionRef<int64_t(int value)> bytes_;
  IndexedVector<int> uses_;  // by value: uses that are still to come
  int64_t live_ = 0, peak_ = 0;
};

}  // namespace detail

OPKIT_INLINE int64_t PeakBytes(const GraphView& view, const std::vector<int>& order,
                               FunctionRef<int64_t(int value)> bytes) {
  detail::LiveBytes live(view, bytes);
  for (const int node : order) live.Run(node);
  return live.peak();
}

OPKIT_INLINE std::vector<int> OrderForFootprint(const GraphView& view,
                                                FunctionRef<int64_t(int value)> bytes) {
  using detail::Index;
  constexpr size_t kLookedAt = 64;
  detail::IndexedVector<int> waits(Index(view.num_nodes()), 0), ready, order;
  detail::IndexedVector<std::vector<int>> after(waits.size());
  for (const GraphView::Edge& edge : view.edges()) {
    ++waits[edge.to];
    after[edge.from].push_back(edge.to);
  }
  for (const int node : view.order())
    if (waits[node] == 0) ready.push_back(node);
  detail::LiveBytes live(view, bytes);
  while (!ready.empty()) {
    const size_t count = (std::min)(ready.size(), kLookedAt);
    const auto next =
        std::ranges::min_element(ready.begin(), ready.begin() + static_cast<long>(count), {},
                                 [&](int node) { return std::pair(live.Growth(node), node); });
    const int node = *next;
    ready.erase(next);
    order.push_back(node);
    live.Run(node);
    for (const int waiting : after[node])
      if (--waits[waiting] == 0) ready.push_back(waiting);
  }
  return live.peak() < PeakBytes(view, view.order(), bytes) ? order : view.order();
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_IMPL_NODE_ORDER_IPP_
