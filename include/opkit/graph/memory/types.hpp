// The memory planner's input and output: buffers with lifetimes, and their offsets in one arena.
// Plain numbers, without a graph; lifetimes.hpp makes buffers from a run's values.
#ifndef OPKIT_GRAPH_MEMORY_TYPES_HPP_
#define OPKIT_GRAPH_MEMORY_TYPES_HPP_

#include <span>
#include <string>
#include <vector>

#include "opkit/base/timeout.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// A buffer that is live in the half-open span [lower, upper) of any clock, such as the step numbers
// of a fixed order. `size` is in bytes and may be 0; `alignment` of the offset is a power of two.
struct MemoryInterval {
  int64_t lower = 0;
  int64_t upper = 1;
  int64_t size = 0;
  int64_t alignment = 1;
};

// For each buffer, the buffers that it must not overlap; each pair is listed on both sides. The
// partners of buffer i are others[starts[i]] up to others[starts[i + 1]]. Both empty: buffers
// conflict if their spans of time overlap.
struct MemoryConflicts {
  std::vector<int64_t> starts;
  std::vector<int> others;

  bool empty() const { return starts.empty(); }
  std::span<const int> of(size_t buffer) const {
    return {others.data() + starts[buffer], others.data() + starts[buffer + 1]};
  }
};

struct MemoryPlanOptions {
  // time_budget and max_steps bound the search that follows the greedy portfolio. The search also
  // ends as soon as the arena is as small as the lower bound. Zero for either: the portfolio alone.
  Timeout time_budget = {};
  // Steps of the search, each about 5 ns. A plan limited by steps alone is the same on every
  // machine. The default (-1) is no limit with a time budget, and kDefaultSteps without one. If
  // conflicts are more than overlapping spans, it is at most kStepsPerSquare times the square of
  // the buffers: that search cannot prove that there is nothing lower, and finds little more after
  // 3,000 moves.
  int64_t max_steps = -1;
  static constexpr int64_t kDefaultSteps = 10'000'000;
  static constexpr int64_t kStepsPerSquare = 400;
  uint64_t seed = 0;
  // The search stops at an arena of at most this size.
  int64_t enough_bytes = 0;
  // The most bytes that an arena may have; 0: any number. Planning throws kOutOfMemory for a
  // graph that needs more, with the values that are live where it needs most.
  int64_t capacity_bytes = 0;
  // Reorders nodes that run one after the other, if fewer bytes are live at once then. What a graph
  // computes does not change; the order of effects that no edge fixes may.
  bool reorder_nodes = false;
  // Makes Compile compute values again just before a late reader if the plan needs more than
  // capacity_bytes otherwise (graph/memory/recompute.hpp). It chooses few and cheap nodes, by the
  // costs of their schemas, until the plan fits. Nodes that are stateful, random, rewrite a value
  // or run a graph never run twice. A node that runs again has the name of its original and
  // "#again", and so have its values; MemorySummary and Explain count them. Compile throws
  // kInvalidArgument without capacity_bytes, which says when to stop. It also throws it for an
  // input whose dtype or shape is open, since each shape would need its own graph. Costs Compile up
  // to kRecomputeTries more plans, and searches whose time is quadratic in the nodes: about 0.1 s
  // each for 1,000.
  bool recompute = false;
  static constexpr int kRecomputeTries = 8;
  // The limit for the bytes of a value whose shape a run decides (NonZero): the value is planned if
  // its bound is not larger. Other such values have a buffer of their own, which grows with the
  // runs. All of them do if the arena would pass capacity_bytes otherwise.
  int64_t most_bound_bytes = int64_t{64} << 20;
  // The search to use: "skyline" (if conflicts are exactly the overlapping spans) or "annealing"
  // (at most 8,192 buffers). If it cannot take the buffers, the portfolio's plan stays. Empty: the
  // first search that can. Planning throws kNotFound, with the nearest name, for any other name.
  std::string search = {};
};

// The size of an arena, with sizes to compare it with.
struct ArenaSize {
  int64_t arena_bytes = 0;
  int64_t lower_bound_bytes = 0;  // no arena can be smaller
  int64_t naive_bytes = 0;        // every buffer in a place of its own
  double seconds = 0;             // time that planning took
  // Returns arena_bytes / lower_bound_bytes; 1 is perfect.
  double ratio() const {
    return lower_bound_bytes == 0
               ? 1
               : static_cast<double>(arena_bytes) / static_cast<double>(lower_bound_bytes);
  }
};

// The plan of one arena. arena_bytes is a multiple of the smallest alignment among the buffers.
// lower_bound_bytes is the size of the largest set of buffers that are live together, each rounded
// up to that alignment. With listed conflicts it is the size of a set of buffers that all conflict:
// the largest one for up to 1,024 buffers whose order in time is partial.
struct MemoryPlan : ArenaSize {
  std::vector<int64_t> offsets;  // one for each buffer, in the order given
  int64_t steps = 0;             // steps that the search took
  const char* method = "none";   // the order or search that found it
};

// The memory of a run's planned values, summed over the devices that it uses. Graph inputs,
// constants and outputs lie outside, and so do values whose shape a run decides, unless inference
// gives a bound.
struct MemorySummary : ArenaSize {
  int planned_values = 0;
  int bounded_values = 0;  // planned values that take an upper bound of their bytes
  int inplace_values = 0;  // planned values that take over the bytes of an input
  // Nodes that run again since their values are not kept (MemoryPlanOptions::recompute), and their
  // cost as a share of that of all nodes once: 0.1 is a tenth more work, as schemas estimate it.
  int recomputed_nodes = 0;
  double recomputed_share = 0;
};

}}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_TYPES_HPP_
