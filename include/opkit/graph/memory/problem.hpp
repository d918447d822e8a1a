// The memory planner's internal form of its input: checked, without empty buffers, with sizes and
// alignments in the largest unit that divides them all. Time is cut into the fewest sections that
// distinguish the lifetimes. Also two types that all placing methods share: the best placing so
// far, and a budget.
#ifndef OPKIT_GRAPH_MEMORY_PROBLEM_HPP_
#define OPKIT_GRAPH_MEMORY_PROBLEM_HPP_

#include <algorithm>
#include <utility>

#include "opkit/base/algorithm.hpp"
#include "opkit/base/error.hpp"
#include "opkit/base/indexed_vector.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/graph/memory/arena.hpp"
#include "opkit/graph/memory/flat_lists.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The buffers to place, numbered without the empty ones. All sizes are in `unit` bytes.
struct MemoryProblem {
  int count = 0;                    // buffers that have a size
  IndexedVector<int> buffer;        // by buffer: its index in the planner's input
  IndexedVector<int> size;          // in units
  IndexedVector<int> alignment;     // in units, a power of two
  IndexedVector<int> lower, upper;  // sections [lower, upper) in which it is live
  int sections = 0;
  IndexedVector<int> total;  // the units live in each section
  // By buffer: the buffers that conflict with it; empty if there are too many to list.
  FlatLists conflicts;
  bool spans_decide = true;  // conflicts are those of the spans, no others
  int64_t pairs = 0;         // number of conflicts
  int64_t unit = 1;          // bytes
  int64_t rounding = 1;      // bytes that every size was rounded up to
  int bound = 0;             // units: no arena is smaller
  int64_t bound_bytes = 0;
  int64_t naive_bytes = 0;
};

// A solution: the offset of each buffer, in units.
struct Placing {
  IndexedVector<int> offsets;
  int height = 0;
  const char* method = nullptr;  // null: there is no placing yet

  void KeepLower(const IndexedVector<int>& new_offsets, int new_height, const char* new_method) {
    if (method && new_height >= height) return;
    offsets = new_offsets;
    height = new_height;
    method = new_method;
  }
};

// The time and the steps that a search may spend.
struct SearchBudget {
  int64_t deadline_ns = -1;  // negative: none
  int64_t steps = 0;         // steps left; a search subtracts those that it takes
  uint64_t seed = 0;
  int enough = 0;  // units: a placing this low ends the search

  bool is_late() const { return deadline_ns >= 0 && MonotonicNs() >= deadline_ns; }
};

inline int AlignUnits(int offset, int alignment) { return (offset + alignment - 1) & -alignment; }

// Returns, for each buffer, the units that are live in the most crowded section of its span.
IndexedVector<int64_t> Peaks(const MemoryProblem& problem);

IndexedVector<int64_t> Lengths(const MemoryProblem& problem);

// Returns the indices of `keys` by ascending key; equal keys keep their order.
template <class Key>
std::vector<int> SortedBy(const IndexedVector<Key>& keys) {
  return SortedOrder(keys.size(), [&](int a, int b) { return keys[a] < keys[b]; });
}

inline int64_t RoundUp(int64_t bytes, int64_t power_of_two) {
  return (bytes + power_of_two - 1) & -power_of_two;
}

// Fills in sizes, alignments and their unit.
void MeasureBuffers(const std::vector<MemoryInterval>& intervals, MemoryProblem* problem);

// Cuts time into sections. A section ends when a buffer ends after another one has begun. At any
// other time, the live buffers are a subset of a section's live buffers.
void CutSections(const std::vector<MemoryInterval>& intervals, MemoryProblem* problem);

// Lists the conflicts of overlapping spans. Time and space are linear in their number.
void ListConflicts(MemoryProblem* problem);

// Checks the conflicts and renumbers them without the empty buffers.
void TakeConflicts(const MemoryConflicts& conflicts, size_t n, MemoryProblem* problem);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/memory/impl/problem.ipp"
#endif

#endif  // OPKIT_GRAPH_MEMORY_PROBLEM_HPP_
