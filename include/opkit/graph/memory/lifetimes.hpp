// FindLifetimes: converts the order that an executor keeps to the buffers that memory is planned
// for, and finds which of them can be live together in some legal run. It runs after selection,
// which fixes the values that steps read, write and may overwrite, and before PlanMemory.
#ifndef OPKIT_GRAPH_MEMORY_LIFETIMES_HPP_
#define OPKIT_GRAPH_MEMORY_LIFETIMES_HPP_

#include "opkit/graph/memory/arena.hpp"
#include "opkit/graph/memory/run_order.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The buffers and conflicts that PlanMemory takes. A value's offset in the arena is the offset of
// its buffer plus its offset in the buffer.
struct MemoryLifetimes {
  IndexedVector<MemoryInterval> buffers;
  MemoryConflicts conflicts;                // if empty, buffers with overlapping spans conflict
  IndexedVector<int> buffer_of;             // by value: its buffer; -1 for an external value
  IndexedVector<int64_t> offset_in_buffer;  // by value: its offset in its buffer
  std::vector<uint8_t> granted;             // by in-place option: 1 if its two values share bytes
  // True if two buffers conflict only if some legal run has both live. False for a large graph
  // without stages, and for stages of several steps: some buffers then conflict although they
  // could share bytes.
  bool exact = true;
};

struct LifetimeOptions {
  // The largest number of steps without stages for which conflicts are exact. Exact conflicts take
  // one bit for each pair of steps, and 8 bytes for each conflict. For more steps, or more than 8
  // million conflicts, lifetimes come from the longest path: a value is live from the last step of
  // that path before all its uses to the first step of that path after them.
  int exact_nodes = 4096;
};

// Finds the buffers of a run. Throws kInvalidArgument, with the edge, value or option, for an index
// out of range, an edge against the stored order, a view outside the value that it views, a user
// that is not ordered after the producer, or an in-place option whose step does not read the input
// and make the output.
//
// Grants in-place options in the order given. An option is granted if every other touch of the
// input's buffer completes before the step starts, in every legal run. Moreover, the buffer must be
// planned memory that is not kept after the run; the output must fit into it; and the step must
// read the buffer exactly once.
MemoryLifetimes FindLifetimes(const RunOrder& run, const IndexedVector<RunValue>& values,
                              const std::vector<InPlaceOption>& in_place = {},
                              const LifetimeOptions& options = {});

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/memory/impl/lifetimes.ipp"
#endif
#endif  // OPKIT_GRAPH_MEMORY_LIFETIMES_HPP_
