// The memory planner's input and output: buffers with lifetimes in, offsets in one arena out. Plain
// numbers: it knows no graph, and lifetimes.hpp makes buffers of a run's values.
#ifndef OPKIT_GRAPH_MEMORY_TYPES_HPP_
#define OPKIT_GRAPH_MEMORY_TYPES_HPP_

#include <span>
#include <string>
#include <vector>

#include "opkit/base/timeout.hpp"

namespace opkit::inline OPKIT_ABI {

// A buffer that is live in the half-open span [lower, upper) of any clock: step numbers of a fixed
// order, say. `size` is in bytes and may be 0; `alignment` of the offset is a power of two.
struct MemoryInterval {
  int64_t lower = 0;
  int64_t upper = 1;
  int64_t size = 0;
  int64_t alignment = 1;
};

// For each buffer those that it must not overlap, each pair listed on both sides: the partners of
// buffer i are others[starts[i]] up to others[starts[i + 1]]. Both empty: spans of time decide.
struct MemoryConflicts {
  std::vector<int64_t> starts;
  std::vector<int> others;

  bool empty() const { return starts.empty(); }
  std::span<const int> of(size_t buffer) const {
    return {others.data() + starts[buffer], others.data() + starts[buffer + 1]};
  }
};

struct MemoryPlanOptions {
  // Both bound the search that follows the greedy portfolio; it also ends as soon as the arena is
  // as small as the lower bound. Zero for either: the portfolio alone.
  Timeout time_budget = {};
  // Steps of the search, each about 5 ns. A plan made within steps alone is the same on every
  // machine. The default with a time budget is no limit; without one it is kDefaultSteps, but at
  // most kStepsPerSquare times the square of the buffers where conflicts are more than spans say:
  // that search cannot prove that there is nothing lower, and finds little more after 3,000 moves.
  int64_t max_steps = -1;
  static constexpr int64_t kDefaultSteps = 10'000'000;
  static constexpr int64_t kStepsPerSquare = 400;
  uint64_t seed = 0;
  // An arena that is small enough: the search stops there.
  int64_t enough_bytes = 0;
  // The most bytes that an arena may have; 0: any number. A graph whose plan needs more is refused
  // with the values that are live where it needs most.
  int64_t capacity_bytes = 0;
  // Takes nodes that run one after the other in another order than they were added, where fewer
  // bytes are live at once then. What a graph computes does not change; the order of effects that
  // no edge fixes may.
  bool reorder_nodes = false;
  // Has Compile compute values again just before a late reader where the plan needs more than
  // capacity_bytes otherwise (graph/memory/recompute.hpp): as few and as cheap nodes as it finds,
  // by the costs of their schemas, until the plan fits. Nodes that are stateful, random, rewrite a
  // value or run a graph are never run twice. A node that runs again has the name of its original
  // and "#again", and its values too; MemorySummary and Explain count them. Compile throws
  // kInvalidArgument without capacity_bytes, which says when to stop, and for an input whose dtype
  // or shape is open, since each of its shapes would need a graph of its own. Costs Compile up to
  // kRecomputeTries plans more, and searches that take time by the square of the nodes: about 0.1 s
  // each for 1,000.
  bool recompute = false;
  static constexpr int kRecomputeTries = 8;
  // The most bytes that the bound of a value whose shape a run decides (NonZero) may come to for
  // the value to be planned. Where it has no bound, or a larger one, or the arena would pass
  // capacity_bytes, the value has a buffer of its own, which grows with the runs.
  int64_t most_bound_bytes = int64_t{64} << 20;
  // The search to use: "skyline" (buffers whose spans decide their conflicts) or "annealing" (at
  // most 8,192 buffers). Where it cannot take the buffers the portfolio's plan stays. Empty: the
  // first of them that can. Planning throws kNotFound, with the nearest name, for any other.
  std::string search = {};
};

// The size of an arena, beside what it could be.
struct ArenaSize {
  int64_t arena_bytes = 0;
  int64_t lower_bound_bytes = 0;  // no arena can be smaller
  int64_t naive_bytes = 0;        // every buffer in a place of its own
  double seconds = 0;             // that planning took
  // 1 is perfect.
  double ratio() const {
    return lower_bound_bytes == 0
               ? 1
               : static_cast<double>(arena_bytes) / static_cast<double>(lower_bound_bytes);
  }
};

// arena_bytes is a multiple of the smallest alignment among the buffers. lower_bound_bytes is the
// largest set of buffers that are live together, each rounded up to that alignment; with listed
// conflicts it is a set of buffers that all conflict, the largest for up to 1,024 buffers whose
// order in time is partial.
struct MemoryPlan : ArenaSize {
  std::vector<int64_t> offsets;  // one for each buffer, in the order given
  int64_t steps = 0;             // that the search took
  const char* method = "none";   // the order or search that found it
};

// The memory of a run's planned values, summed over the devices that it uses. Graph inputs,
// constants and outputs lie outside, and so do values whose shape a run decides, unless inference
// gives a bound.
struct MemorySummary : ArenaSize {
  int planned_values = 0;
  int bounded_values = 0;  // of them, those that take the most bytes that a run may need
  int inplace_values = 0;  // that take over the bytes of an input
  // Nodes that run again since their values are not kept (MemoryPlanOptions::recompute), and their
  // cost as a share of that of all nodes once: 0.1 is a tenth more work, as schemas estimate it.
  int recomputed_nodes = 0;
  double recomputed_share = 0;
};

}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_TYPES_HPP_
