// ReplayMode: the three ways of running a Schedule. An estimate from the graph's shape and the time
// that a node takes chooses one of them, or measurements of the first runs do.
#ifndef OPKIT_ENGINE_SCHEDULE_REPLAY_MODE_HPP_
#define OPKIT_ENGINE_SCHEDULE_REPLAY_MODE_HPP_

#include <cstdint>
#include <string>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class Schedule;

enum class ReplayMode {
  kAuto,      // the choice of ChooseMode; kWalk if runs prove that faster
  kWalk,      // one thread, the stored order, no counters
  kLevels,    // level by level, wide levels shared by all threads
  kCounters,  // a node runs when its last predecessor has released it, on any thread
};

const char* ToString(ReplayMode mode);

// Returns the mode expected to be fastest: kWalk unless another takes at most 0.85 of its time.
// `may_pend`: nodes may return before they are completed; the mode is then always kCounters.
ReplayMode ChooseMode(const Schedule& schedule, double ns_per_node, int threads,
                      bool may_pend = false);

// Returns one sentence for Describe(): the choice of ChooseMode and the reason for it.
OPKIT_COLD std::string ExplainMode(const Schedule& schedule, double ns_per_node, int threads,
                                   bool may_pend = false);

namespace detail {

// Returns the least number of nodes in a level for which sharing it among threads saves time.
int WidthToShare(double ns_per_node);

// Finds the mode of a Replay by its first runs: uses kWalk a few times, then tries the modes that
// the estimate favours, and keeps the fastest. A parallel mode (kLevels, kCounters) must be clearly
// faster than kWalk. Later runs are watched: if a parallel mode loses time against kWalk, because
// other work has taken a core, the next run uses kWalk. The modes are tried again when runs have
// become much longer or shorter, and now and then, to find a core that is free again.
class ReplayTuner {
 public:
  // `ns_per_node` of 0 means unknown.
  ReplayTuner(const Schedule& schedule, ReplayMode mode, double ns_per_node, int threads,
              bool may_pend);

  ReplayMode mode() const { return mode_; }
  // True if the mode is settled, and not on trial. decisions() is the number of times that a mode
  // was settled.
  bool settled() const { return settled_; }
  int decisions() const { return decisions_; }
  bool may_use_counters() const { return !fixed_ || mode_ == ReplayMode::kCounters; }
  double ns_per_node() const {
    constexpr double kUsualNs = 100, kUsualPendingNs = 10'000;  // a launch on a device
    return known_ns_ > 0 ? known_ns_ : may_pend_ ? kUsualPendingNs : kUsualNs;
  }

  // True if the next run is to be timed and given to Record; called before each run. A run with
  // kWalk may take less time than reading the clock: once settled, one such run in 16 is timed.
  bool NextIsTimed() {
    if (fixed_) return false;
    return !settled_ || ++runs_ % 16 == 0 || mode_ != ReplayMode::kWalk;
  }
  // Records how long a run in mode() took. On trial the best of each mode counts: the first runs
  // warm the caches, and every disturbance makes a run longer.
  void Record(int64_t ns) { settled_ ? Watch(ns) : Try(ns); }

  OPKIT_COLD std::string Explain() const;

 private:
  ReplayMode Choose(double ns) const { return ChooseMode(schedule_, ns, threads_, may_pend_); }
  void Try(int64_t ns);
  void Watch(int64_t ns);
  bool EnoughRuns(int64_t ns) const;
  ReplayMode FastestTried() const;
  void Settle(ReplayMode mode);
  int64_t& best_ns(ReplayMode mode) { return best_ns_[static_cast<int>(mode)]; }
  int64_t best_ns(ReplayMode mode) const { return best_ns_[static_cast<int>(mode)]; }
  // Returns the time by which parallel runs took longer than with kWalk, divided by the time of a
  // run with kWalk.
  double LostWalks() const {
    return static_cast<double>(lost_ns_) / static_cast<double>(best_ns(ReplayMode::kWalk));
  }

  const Schedule& schedule_;
  const ReplayMode asked_;
  ReplayMode mode_;
  const int threads_;
  const bool may_pend_;
  bool fixed_ = true;  // the mode will never change
  bool settled_ = true;
  bool tries_levels_ = false, tries_counters_ = false;
  int decisions_ = 0;
  int runs_ = 0;         // runs in the present mode
  int retry_after_ = 0;  // runs before the modes are tried again
  int64_t tried_ns_ = 0, lost_ns_ = 0;
  double known_ns_ = 0;                   // 0: not known yet
  double usual_ns_ = 0, average_ns_ = 0;  // time of a run: at the choice of the mode, and lately
  int64_t best_ns_[4] = {};               // 0: mode not tried
};

}  // namespace detail
}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/engine/schedule/impl/replay_mode.ipp"
#endif

#endif  // OPKIT_ENGINE_SCHEDULE_REPLAY_MODE_HPP_
