// ReplayMode: the three ways of running a Schedule, and the estimate by which one is chosen from
// the graph's shape and the time that a node takes.
#ifndef OPKIT_ENGINE_SCHEDULE_REPLAY_MODE_HPP_
#define OPKIT_ENGINE_SCHEDULE_REPLAY_MODE_HPP_

#include <cstdint>
#include <string>

#include "opkit/base/strings.hpp"
#include "opkit/engine/schedule/schedule.hpp"

namespace opkit::inline OPKIT_ABI {

enum class ReplayMode {
  kAuto,      // the choice of ChooseMode, kept only if it proves faster than the walk
  kWalk,      // one thread, the stored order, no counters
  kLevels,    // level by level, wide levels shared by all threads
  kCounters,  // a node runs when its last predecessor has released it, on any thread
};

inline const char* ToString(ReplayMode mode) {
  constexpr const char* kNames[] = {"auto", "walk", "levels", "counters"};
  return kNames[static_cast<int>(mode)];
}

namespace detail {

// What the modes cost beside the nodes, in ns, on a machine of today.
inline constexpr double kJoinNs = 1000;       // until a second thread takes part
inline constexpr double kHandshakeNs = 600;   // sharing one level
inline constexpr double kCounterNs = 25;      // a node's counters and queue
inline constexpr double kWorthFactor = 0.85;  // of the walk's time, or the walk stays

struct ReplayEstimate {
  double walk_ns, levels_ns, counters_ns;
};

// Width of a level from which sharing it pays.
inline int WidthToShare(double ns_per_node) {
  const double width = 2 * kHandshakeNs / (ns_per_node > 0.5 ? ns_per_node : 0.5);
  return width < 2 ? 2 : static_cast<int>(width) + 1;
}

template <class Schedule>
ReplayEstimate EstimateReplay(const Schedule& schedule, double ns_per_node, int threads) {
  const double n = schedule.size();
  ReplayEstimate estimate{n * ns_per_node, kJoinNs, kJoinNs};
  const int wide = WidthToShare(ns_per_node);
  double critical_ns = 0;  // of levels, were each run at full width
  for (int i = 0; i < Schedule::kWidthClasses; ++i) {
    const double levels = schedule.levels_of_width(i);
    if (levels == 0) continue;
    const double nodes = schedule.nodes_of_width(i);
    const double width = nodes / levels;
    const double parallel = width < threads ? width : threads;
    const bool shared = width >= wide;
    estimate.levels_ns +=
        nodes * ns_per_node / (shared ? parallel : 1) + (shared ? levels * kHandshakeNs : 0);
    critical_ns += nodes / parallel;
  }
  estimate.counters_ns += critical_ns * (ns_per_node + kCounterNs);
  return estimate;
}

}  // namespace detail

// The mode expected to be fastest: kWalk unless another takes at most 0.85 of its time. With
// `may_pend` always kCounters.
template <class S = Schedule>
ReplayMode ChooseMode(const std::type_identity_t<S>& schedule, double ns_per_node, int threads,
                      bool may_pend = false) {
  if (may_pend) return ReplayMode::kCounters;
  if (threads < 2 || schedule.in_order() || schedule.max_width() < 2) return ReplayMode::kWalk;
  const auto [walk, levels, counters] = detail::EstimateReplay(schedule, ns_per_node, threads);
  if ((levels < counters ? levels : counters) > detail::kWorthFactor * walk) {
    return ReplayMode::kWalk;
  }
  return levels <= counters ? ReplayMode::kLevels : ReplayMode::kCounters;
}

// One sentence for Describe(): the choice of ChooseMode and why.
template <class S = Schedule>
OPKIT_COLD std::string ExplainMode(const std::type_identity_t<S>& schedule, double ns_per_node,
                                   int threads, bool may_pend = false) {
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

#endif  // OPKIT_ENGINE_SCHEDULE_REPLAY_MODE_HPP_
