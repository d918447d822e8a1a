// FindLifetimes: from the order that an executor keeps to the buffers that memory is planned for,
// and which of them can be live together in some legal run. It stands between selection, which
// fixes the values that steps read, write and may overwrite, and PlanMemory.
#ifndef OPKIT_GRAPH_MEMORY_LIFETIMES_HPP_
#define OPKIT_GRAPH_MEMORY_LIFETIMES_HPP_

#include "opkit/graph/memory/lifetime_types.hpp"
#include "opkit/graph/memory/types.hpp"

namespace opkit::inline OPKIT_ABI {

// `buffers` and `conflicts` are what PlanMemory takes. A value's place in the arena is the offset
// of its buffer plus its offset in it.
struct MemoryLifetimes {
  std::vector<MemoryInterval> buffers;
  MemoryConflicts conflicts;              // empty: the buffers' spans decide
  std::vector<int> buffer_of;             // of each value; -1 for external ones
  std::vector<int64_t> offset_in_buffer;  // of each value
  std::vector<uint8_t> granted;           // of each in-place option, 1 where the values share bytes
  // Whether two buffers conflict only where a legal run has both live. False for a large graph
  // without stages, and for stages of several steps: some buffers that conflict then could share.
  bool exact = true;
};

struct LifetimeOptions {
  // Up to so many steps without stages, conflicts are exact: steps squared bits, and 8 bytes for a
  // conflict. Above it, or past 8 million conflicts, lifetimes are read off the longest path: a
  // value is live between the last step on it before all its uses and the first one after them.
  int exact_nodes = 4096;
};

// Errors (kInvalidArgument) name the edge, value or option: an index out of range, an edge against
// the stored order, a view outside what it views, a user that is not ordered after the producer, an
// in-place option whose step does not read the input and make the output.
//
// An in-place option is granted, in the order given, when every other touch of the input's buffer
// completes before the step starts in every legal run, nobody reads the buffer after the run, it is
// planned memory, the output fits, and the step reads the buffer once.
MemoryLifetimes FindLifetimes(const RunOrder& run, const std::vector<RunValue>& values,
                              const std::vector<InPlaceOption>& in_place = {},
                              const LifetimeOptions& options = {});

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/memory/impl/lifetimes.ipp"
#endif
#endif  // OPKIT_GRAPH_MEMORY_LIFETIMES_HPP_
