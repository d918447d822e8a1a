// MemorySummary: the memory that the runs of a plan take.
#ifndef OPKIT_GRAPH_MEMORY_SUMMARY_HPP_
#define OPKIT_GRAPH_MEMORY_SUMMARY_HPP_

#include <cstdint>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

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

}  // namespace detail

// The memory of a run's planned values, summed over the devices that it uses. Graph inputs,
// constants and outputs lie outside, and so do values whose shape a run decides, unless inference
// gives a bound.
struct MemorySummary : detail::ArenaSize {
  int planned_values = 0;
  int bounded_values = 0;  // planned values that take an upper bound of their bytes
  int inplace_values = 0;  // planned values that take over the bytes of an input
  // Nodes that run again since their values are not kept (PlanOptions::memory.recompute). The share
  // is their estimated cost, divided by the cost of all nodes once: 0.1 is a tenth more.
  int recomputed_nodes = 0;
  double recomputed_share = 0;
};

}}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_SUMMARY_HPP_
