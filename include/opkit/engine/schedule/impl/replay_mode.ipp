// The estimate of what running a schedule costs, by mode.
#ifndef OPKIT_ENGINE_SCHEDULE_IMPL_REPLAY_MODE_IPP_
#define OPKIT_ENGINE_SCHEDULE_IMPL_REPLAY_MODE_IPP_

#include <algorithm>

#include "opkit/base/strings.hpp"
#include "opkit/engine/schedule/replay_mode.hpp"
#include "opkit/engine/schedule/schedule.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

inline constexpr double kHandshakeNs = 600;  // sharing one level

OPKIT_INLINE int WidthToShare(double ns_per_node) {
  const double width = 2 * kHandshakeNs / (std::max)(ns_per_node, 0.5);
  return width < 2 ? 2 : static_cast<int>(width) + 1;
}

OPKIT_INLINE ReplayEstimate EstimateReplay(const Schedule& schedule, double ns_per_node,
                                           int threads) {
  constexpr double kJoinNs = 1000;   // until a second thread takes part
  constexpr double kCounterNs = 25;  // a node's counters and queue
  const double n = schedule.size();
  ReplayEstimate estimate{n * ns_per_node, kJoinNs, kJoinNs};
  const int wide = WidthToShare(ns_per_node);
  double critical_nodes = 0;  // of levels, were each run at full width
  for (int i = 0; i < Schedule::kWidthClasses; ++i) {
    const double levels = schedule.levels_of_width(i);
    if (levels == 0) continue;
    const double nodes = schedule.nodes_of_width(i);
    const double width = nodes / levels;
    const double parallel = (std::min)(width, static_cast<double>(threads));
    const bool shared = width >= wide;
    estimate.levels_ns +=
        nodes * ns_per_node / (shared ? parallel : 1) + (shared ? levels * kHandshakeNs : 0);
    critical_nodes += nodes / parallel;
  }
  estimate.counters_ns += critical_nodes * (ns_per_node + kCounterNs);
  return estimate;
}

}  // namespace detail

OPKIT_INLINE const char* ToString(ReplayMode mode) {
  constexpr const char* kNames[] = {"auto", "walk", "levels", "counters"};
  return kNames[static_cast<int>(mode)];
}

OPKIT_INLINE ReplayMode ChooseMode(const Schedule& schedule, double ns_per_node, int threads,
                                   bool may_pend) {
  if (may_pend) return ReplayMode::kCounters;
  if (threads < 2 || schedule.in_order() || schedule.max_width() < 2) return ReplayMode::kWalk;
  const auto [walk, levels, counters] = detail::EstimateReplay(schedule, ns_per_node, threads);
  if ((std::min)(levels, counters) > detail::ReplayEstimate::kWorthFactor * walk)
    return ReplayMode::kWalk;
  return levels <= counters ? ReplayMode::kLevels : ReplayMode::kCounters;
}

OPKIT_INLINE std::string ExplainMode(const Schedule& schedule, double ns_per_node, int threads,
                                     bool may_pend) {
  if (may_pend) return "counters: nodes may complete asynchronously";
  if (threads < 2) return "walk: one thread";
  if (schedule.in_order()) return "walk: the stored order is asked for";
  if (schedule.max_width() < 2) return "walk: the graph is a chain";
  const auto [walk, levels, counters] = detail::EstimateReplay(schedule, ns_per_node, threads);
  const auto us = [](double ns) { return static_cast<double>(static_cast<int64_t>(ns)) / 1000; };
  return StrCat(ToString(ChooseMode(schedule, ns_per_node, threads)), ": with ", ns_per_node,
                StrCat(" ns a node, ", threads, " threads and levels ", schedule.max_width()),
                StrCat(" wide at most, the estimates are ", us(walk), " us for walk, "), us(levels),
                " for levels, ", us(counters), " for counters");
}

}  // namespace opkit

#endif  // OPKIT_ENGINE_SCHEDULE_IMPL_REPLAY_MODE_IPP_
