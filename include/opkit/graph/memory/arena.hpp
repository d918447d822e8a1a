// The memory planner's input and output: buffers with lifetimes, and their offsets in one arena.
// Plain numbers, without a graph; lifetimes.hpp makes buffers from a run's values.
#ifndef OPKIT_GRAPH_MEMORY_ARENA_HPP_
#define OPKIT_GRAPH_MEMORY_ARENA_HPP_

#include <cstdint>
#include <span>
#include <vector>

#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/memory/summary.hpp"

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
// partners of buffer i are others[starts[i]] up to others[starts[i + 1]]. If both lists are empty,
// buffers conflict if their spans of time overlap.
struct MemoryConflicts {
  detail::IndexedVector<int64_t> starts;
  std::vector<int> others;

  bool empty() const { return starts.empty(); }
  template <class Number>
  std::span<const int> of(Number buffer) const {
    return {others.data() + starts[buffer], others.data() + starts[buffer + 1]};
  }
};

// The plan of one arena. arena_bytes is a multiple of the smallest alignment among the buffers.
// lower_bound_bytes is the size of the largest set of buffers that are live together, each rounded
// up to that alignment. With listed conflicts it is the size of a set of buffers that all conflict:
// the largest such set for up to 1,024 buffers whose order in time is partial.
struct MemoryPlan : detail::ArenaSize {
  detail::IndexedVector<int64_t> offsets;  // one for each buffer, in the order given
  int64_t steps = 0;                       // steps that the search took
  const char* method = "none";             // the order or search that found the plan
};

}}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_ARENA_HPP_
