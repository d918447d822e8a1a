// ReplayMode: the three ways of running a Schedule, and the estimate by which one is chosen from
// the graph's shape and the time that a node takes.
#ifndef OPKIT_ENGINE_SCHEDULE_REPLAY_MODE_HPP_
#define OPKIT_ENGINE_SCHEDULE_REPLAY_MODE_HPP_

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

// What the modes cost, in ns, on a machine of today.
struct ReplayEstimate {
  static constexpr double kWorthFactor = 0.85;  // of the walk's time, or the walk stays

  double walk_ns, levels_ns, counters_ns;
};

ReplayEstimate EstimateReplay(const Schedule& schedule, double ns_per_node, int threads);

// Width of a level from which sharing it pays.
int WidthToShare(double ns_per_node);

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/engine/schedule/impl/replay_mode.ipp"
#endif

#endif  // OPKIT_ENGINE_SCHEDULE_REPLAY_MODE_HPP_
