// ReplayTuner: settles on the mode of a Replay by its first runs. It walks a few times, tries the
// modes that the estimate then favours, and keeps the fastest: parallel running has to prove
// itself.
#ifndef OPKIT_ENGINE_SCHEDULE_REPLAY_TUNER_HPP_
#define OPKIT_ENGINE_SCHEDULE_REPLAY_TUNER_HPP_

#include <cstdint>
#include <string>

#include "opkit/base/error.hpp"
#include "opkit/engine/schedule/replay_mode.hpp"
#include "opkit/engine/schedule/schedule.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

template <class Schedule>
class ReplayTuner {
 public:
  // `ns_per_node` of 0 means unknown.
  ReplayTuner(const Schedule& schedule, ReplayMode mode, double ns_per_node, int threads,
              bool may_pend)
      : schedule_(schedule),
        asked_(mode),
        mode_(mode),
        threads_(threads),
        may_pend_(may_pend),
        known_ns_(ns_per_node) {
    if (may_pend && mode != ReplayMode::kAuto && mode != ReplayMode::kCounters) {
      Throw(ErrorCode::kInvalidArgument, "expected mode counters (or auto) for nodes that may ",
            "complete asynchronously, found ", ToString(mode),
            "; choose it or set may_pend to false");
    }
    if (schedule.in_order() && mode == ReplayMode::kLevels) {
      Throw(ErrorCode::kInvalidArgument,
            "expected mode walk, counters or auto for a schedule made ",
            "in_order, found levels; choose another or make the schedule without it");
    }
    if (mode != ReplayMode::kAuto) return;
    if (ns_per_node > 0 || may_pend || Choose(1e9) == ReplayMode::kWalk) {
      mode_ = Choose(ns_per_node);
      return;
    }
    settled_ = false;
    mode_ = ReplayMode::kWalk;
  }

  ReplayMode mode() const { return mode_; }
  bool settled() const { return settled_; }
  bool may_use_counters() const { return !settled_ || mode_ == ReplayMode::kCounters; }
  double ns_per_node() const {
    constexpr double kUsualNs = 100, kUsualPendingNs = 10'000;  // a launch on a device
    return known_ns_ > 0 ? known_ns_ : may_pend_ ? kUsualPendingNs : kUsualNs;
  }

  // What a run in mode() took. The best of each mode counts: the first runs warm the caches, and
  // whatever disturbs a run makes it longer.
  void Record(int64_t ns) {
    constexpr int kFewRuns = 4, kManyRuns = 100;
    constexpr int64_t kLongNs = 2'000'000;    // one run of that length says enough
    constexpr int64_t kEnoughNs = 1'000'000;  // threads have started by then
    int64_t& best = best_ns_[static_cast<int>(mode_)];
    if (best == 0 || ns < best) best = ns;
    tried_ns_ += ns;
    ++runs_;
    if ((runs_ < kFewRuns || tried_ns_ < kEnoughNs) && runs_ < kManyRuns && ns < kLongNs) return;
    runs_ = 0;
    tried_ns_ = 0;
    const int64_t walk_ns = best_ns_[static_cast<int>(ReplayMode::kWalk)];
    if (mode_ == ReplayMode::kWalk) {
      known_ns_ = static_cast<double>(walk_ns) / schedule_.size();
      const ReplayEstimate estimate = EstimateReplay(schedule_, known_ns_, threads_);
      const double limit = kWorthFactor * static_cast<double>(walk_ns);
      tries_levels_ = estimate.levels_ns <= limit;
      tries_counters_ = estimate.counters_ns <= limit;
    }
    if (tries_levels_) {
      tries_levels_ = false;
      mode_ = ReplayMode::kLevels;
    } else if (tries_counters_) {
      tries_counters_ = false;
      mode_ = ReplayMode::kCounters;
    } else {
      Settle(walk_ns);
    }
  }

  OPKIT_COLD std::string Explain() const {
    if (asked_ != ReplayMode::kAuto) return StrCat(ToString(mode_), ": asked for");
    if (!settled_) {
      return StrCat(ToString(mode_), ": the first runs measure how long the nodes take");
    }
    if (best_ns_[static_cast<int>(ReplayMode::kWalk)] == 0) {
      return ExplainMode(schedule_, ns_per_node(), threads_, may_pend_);
    }
    std::string tried;
    for (const ReplayMode mode : {ReplayMode::kWalk, ReplayMode::kLevels, ReplayMode::kCounters}) {
      const int64_t ns = best_ns_[static_cast<int>(mode)];
      if (ns == 0) continue;
      tried += StrCat(tried.empty() ? "" : ", ", static_cast<double>(ns / 10) / 100, " us by ",
                      ToString(mode));
    }
    return StrCat(ToString(mode_), ": measured ", tried, " for a run");
  }

 private:
  ReplayMode Choose(double ns) const { return ChooseMode(schedule_, ns, threads_, may_pend_); }

  void Settle(int64_t walk_ns) {
    // A parallel mode has to be clearly faster: it takes other threads' time.
    double limit = 0.95 * static_cast<double>(walk_ns);
    mode_ = ReplayMode::kWalk;
    for (const ReplayMode mode : {ReplayMode::kLevels, ReplayMode::kCounters}) {
      const auto ns = static_cast<double>(best_ns_[static_cast<int>(mode)]);
      if (ns == 0 || ns > limit) continue;
      limit = ns;
      mode_ = mode;
    }
    settled_ = true;
  }

  const Schedule& schedule_;
  const ReplayMode asked_;
  ReplayMode mode_;
  const int threads_;
  const bool may_pend_;
  bool settled_ = true;
  bool tries_levels_ = false, tries_counters_ = false;
  int runs_ = 0;
  int64_t tried_ns_ = 0;
  double known_ns_ = 0;  // 0: not known yet
  int64_t best_ns_[4] = {};
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_ENGINE_SCHEDULE_REPLAY_TUNER_HPP_
