// ReplayMode: the three ways of running a Schedule. One is chosen by an estimate, from the graph's
// shape and the time that a node takes, or by the first runs.
#ifndef OPKIT_ENGINE_SCHEDULE_REPLAY_MODE_HPP_
#define OPKIT_ENGINE_SCHEDULE_REPLAY_MODE_HPP_

#include <cstdint>
#include <string>

#include "opkit/config.hpp"

namespace opkit::inline OPKIT_ABI {

class Schedule;

enum class ReplayMode {
  kAuto,      // the choice of ChooseMode, kept only if it proves faster than the walk
  kWalk,      // one thread, the stored order, no counters
  kLevels,    // level by level, wide levels shared by all threads
  kCounters,  // a node runs when its last predecessor has released it, on any thread
};

const char* ToString(ReplayMode mode);

// The mode expected to be fastest: kWalk unless another takes at most 0.85 of its time. With
// `may_pend` always kCounters.
ReplayMode ChooseMode(const Schedule& schedule, double ns_per_node, int threads,
                      bool may_pend = false);

// One sentence for Describe(): the choice of ChooseMode and why.
OPKIT_COLD std::string ExplainMode(const Schedule& schedule, double ns_per_node, int threads,
                                   bool may_pend = false);

namespace detail {

// Width of a level from which sharing it pays.
int WidthToShare(double ns_per_node);

// Settles on the mode of a Replay by its first runs: walks a few times, tries the modes that the
// estimate then favours, and keeps the fastest; parallel running has to prove itself.
class ReplayTuner {
 public:
  // `ns_per_node` of 0 means unknown.
  ReplayTuner(const Schedule& schedule, ReplayMode mode, double ns_per_node, int threads,
              bool may_pend);

  ReplayMode mode() const { return mode_; }
  bool settled() const { return settled_; }
  bool may_use_counters() const { return !settled_ || mode_ == ReplayMode::kCounters; }
  double ns_per_node() const {
    constexpr double kUsualNs = 100, kUsualPendingNs = 10'000;  // a launch on a device
    return known_ns_ > 0 ? known_ns_ : may_pend_ ? kUsualPendingNs : kUsualNs;
  }

  // Takes note of how long a run in mode() took. The best of each mode counts: the first runs warm
  // the caches, and every disturbance makes a run longer.
  void Record(int64_t ns);

  OPKIT_COLD std::string Explain() const;

 private:
  ReplayMode Choose(double ns) const { return ChooseMode(schedule_, ns, threads_, may_pend_); }
  int64_t& best_ns(ReplayMode mode) { return best_ns_[static_cast<int>(mode)]; }
  int64_t best_ns(ReplayMode mode) const { return best_ns_[static_cast<int>(mode)]; }

  const Schedule& schedule_;
  const ReplayMode asked_;
  ReplayMode mode_;
  const int threads_;
  const bool may_pend_;
  bool settled_ = true;
  bool tries_levels_ = false, tries_counters_ = false;
  int runs_ = 0;
  int64_t tried_ns_ = 0;
  double known_ns_ = 0;      // 0: not known yet
  int64_t best_ns_[4] = {};  // 0: mode not tried
};

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/engine/schedule/impl/replay_mode.ipp"
#endif

#endif  // OPKIT_ENGINE_SCHEDULE_REPLAY_MODE_HPP_
