// The cost of running a schedule by each mode, estimated and measured.
#ifndef OPKIT_ENGINE_SCHEDULE_IMPL_REPLAY_MODE_IPP_
#define OPKIT_ENGINE_SCHEDULE_IMPL_REPLAY_MODE_IPP_

#include <algorithm>

#include "opkit/base/error.hpp"
#include "opkit/engine/schedule/replay_mode.hpp"
#include "opkit/engine/schedule/schedule.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The costs of the modes, in ns, on a machine of today.
struct ReplayEstimate {
  // Another mode replaces kWalk only if it takes at most this share of kWalk's time.
  static constexpr double kWorthFactor = 0.85;

  double walk_ns, levels_ns, counters_ns;
};

inline constexpr double kHandshakeNs = 600;  // cost of sharing one level

OPKIT_INLINE int WidthToShare(double ns_per_node) {
  const double width = 2 * kHandshakeNs / (std::max)(ns_per_node, 0.5);
  return width < 2 ? 2 : static_cast<int>(width) + 1;
}

inline ReplayEstimate EstimateReplay(const Schedule& schedule, double ns_per_node, int threads) {
  constexpr double kJoinNs = 1000;   // time until a second thread takes part
  constexpr double kCounterNs = 25;  // cost of a node's counters and queue
  const double n = schedule.size();
  ReplayEstimate estimate{n * ns_per_node, kJoinNs, kJoinNs};
  const int wide = WidthToShare(ns_per_node);
  double critical_nodes = 0;  // nodes one after the other, if each level ran at full width
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

OPKIT_INLINE ReplayTuner::ReplayTuner(const Schedule& schedule, ReplayMode mode, double ns_per_node,
                                      int threads, bool may_pend)
    : schedule_(schedule),
      asked_(mode),
      mode_(mode),
      threads_(threads),
      may_pend_(may_pend),
      known_ns_(ns_per_node) {
  if (may_pend && mode != ReplayMode::kAuto && mode != ReplayMode::kCounters)
    Throw(ErrorCode::kInvalidArgument,
          "expected mode counters (or auto) for nodes that may complete asynchronously, found ",
          ToString(mode), "; choose it or set may_pend to false");
  if (schedule.in_order() && mode == ReplayMode::kLevels)
    Throw(ErrorCode::kInvalidArgument,
          "expected mode walk, counters or auto for a schedule made in_order, found levels; choose "
          "another or make the schedule without it");
  if (mode != ReplayMode::kAuto) return;
  settled_ = fixed_ = ns_per_node > 0 || may_pend || Choose(1e9) == ReplayMode::kWalk;
  mode_ = fixed_ ? Choose(ns_per_node) : ReplayMode::kWalk;
}

// True if the mode on trial has had enough runs. Later trials are short: the caches are warm and
// the threads are there.
OPKIT_INLINE bool ReplayTuner::EnoughRuns(int64_t ns) const {
  constexpr int kFewRuns = 4, kManyRuns = 100;
  constexpr int64_t kLongNs = 2'000'000;    // one run of that length is enough
  constexpr int64_t kEnoughNs = 1'000'000;  // after this time the pool's threads have started
  if (decisions_ > 0)
    return runs_ >= 2 || (mode_ != ReplayMode::kWalk && ns > 2 * best_ns(ReplayMode::kWalk));
  return runs_ >= kManyRuns || ns >= kLongNs || (runs_ >= kFewRuns && tried_ns_ >= kEnoughNs);
}

OPKIT_INLINE void ReplayTuner::Try(int64_t ns) {
  int64_t& best = best_ns(mode_);
  if (best == 0 || ns < best) best = ns;
  tried_ns_ += ns;
  ++runs_;
  if (mode_ != ReplayMode::kWalk)
    lost_ns_ += (std::max)(ns - best_ns(ReplayMode::kWalk), int64_t{0});
  if (!EnoughRuns(ns)) return;
  runs_ = 0;
  tried_ns_ = 0;
  const auto walk_ns = static_cast<double>(best_ns(ReplayMode::kWalk));
  if (mode_ == ReplayMode::kWalk) {
    known_ns_ = walk_ns / schedule_.size();
    const ReplayEstimate estimate = EstimateReplay(schedule_, known_ns_, threads_);
    const double limit = ReplayEstimate::kWorthFactor * walk_ns;
    tries_levels_ = estimate.levels_ns <= limit;
    tries_counters_ = estimate.counters_ns <= limit;
  }
  if (std::exchange(tries_levels_, false))
    mode_ = ReplayMode::kLevels;
  else if (std::exchange(tries_counters_, false))
    mode_ = ReplayMode::kCounters;
  else
    Settle(FastestTried());
}
OPKIT_INLINE ReplayMode ReplayTuner::FastestTried() const {
  // A parallel mode has to be clearly faster: it takes other threads' time.
  double limit = 0.95 * static_cast<double>(best_ns(ReplayMode::kWalk));
  ReplayMode fastest = ReplayMode::kWalk;
  for (const ReplayMode mode : {ReplayMode::kLevels, ReplayMode::kCounters}) {
    const auto mode_ns = static_cast<double>(best_ns(mode));
    if (mode_ns == 0 || mode_ns > limit) continue;
    limit = mode_ns;
    fastest = mode;
  }
  return fastest;
}

// Settles on a mode. The more the last trial has lost, the later the next one comes: trials take at
// most a quarter of the time.
OPKIT_INLINE void ReplayTuner::Settle(ReplayMode mode) {
  constexpr double kLeastRuns = 64, kMostRuns = 1024;
  retry_after_ = static_cast<int>((std::clamp)(4 * LostWalks(), kLeastRuns, kMostRuns));
  mode_ = mode;
  settled_ = true;
  ++decisions_;
  runs_ = 0;
  lost_ns_ = 0;
  usual_ns_ = average_ns_ = static_cast<double>(best_ns(mode));
}

OPKIT_INLINE void ReplayTuner::Watch(int64_t ns) {
  constexpr double kMostLostWalks = 4, kDrift = 1.5;
  average_ns_ += (static_cast<double>(ns) - average_ns_) / 4;
  if (mode_ != ReplayMode::kWalk) {
    lost_ns_ = (std::max)(lost_ns_ + ns - best_ns(ReplayMode::kWalk), int64_t{0});
    if (LostWalks() > kMostLostWalks) return Settle(ReplayMode::kWalk);
  }
  const bool drifted = average_ns_ > kDrift * usual_ns_ || average_ns_ * kDrift < usual_ns_;
  if (runs_ < retry_after_ || (!drifted && mode_ != ReplayMode::kWalk)) return;
  settled_ = false;
  mode_ = ReplayMode::kWalk;
  std::fill(best_ns_, best_ns_ + 4, 0);
  runs_ = 0;
  lost_ns_ = 0;
}

OPKIT_INLINE std::string ReplayTuner::Explain() const {
  if (asked_ != ReplayMode::kAuto) return StrCat(ToString(mode_), ": asked for");
  if (!settled_) return StrCat(ToString(mode_), ": the first runs measure how long the nodes take");
  if (best_ns(ReplayMode::kWalk) == 0)
    return ExplainMode(schedule_, ns_per_node(), threads_, may_pend_);
  std::string tried;
  for (const ReplayMode mode : {ReplayMode::kWalk, ReplayMode::kLevels, ReplayMode::kCounters}) {
    const int64_t ns = best_ns(mode);
    if (ns == 0) continue;
    tried += StrCat(tried.empty() ? "" : ", ", static_cast<double>(ns / 10) / 100, " us by ",
                    ToString(mode));
  }
  const bool left = mode_ == ReplayMode::kWalk && FastestTried() != mode_;
  return StrCat(ToString(mode_), ": measured ", tried, " for a run",
                left ? ", but other work has taken the cores since" : "");
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

}}  // namespace opkit

#endif  // OPKIT_ENGINE_SCHEDULE_IMPL_REPLAY_MODE_IPP_
