// What every search of the planner is given: the best placing so far, to be made lower, and a
// budget of steps and time.
#ifndef OPKIT_GRAPH_MEMORY_SEARCH_PLACING_HPP_
#define OPKIT_GRAPH_MEMORY_SEARCH_PLACING_HPP_

#include "opkit/graph/memory/problem.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

inline int AlignUnits(int offset, int alignment) { return (offset + alignment - 1) & -alignment; }

struct Placing {
  std::vector<int> offsets;
  int height = 0;
  const char* method = nullptr;  // null: there is no placing yet

  void KeepLower(const std::vector<int>& new_offsets, int new_height, const char* new_method) {
    if (method && new_height >= height) return;
    offsets = new_offsets;
    height = new_height;
    method = new_method;
  }
};

struct SearchBudget {
  int64_t deadline_ns = -1;  // negative: none
  int64_t steps = 0;         // left; a search takes its own off
  uint64_t seed = 0;
  int enough = 0;  // units: a placing this low ends the search

  bool is_late() const { return deadline_ns >= 0 && MonotonicNs() >= deadline_ns; }
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_SEARCH_PLACING_HPP_
