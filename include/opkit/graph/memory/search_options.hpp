// MemorySearchOptions: how long PlanMemory searches for a smaller arena, and by which search.
#ifndef OPKIT_GRAPH_MEMORY_SEARCH_OPTIONS_HPP_
#define OPKIT_GRAPH_MEMORY_SEARCH_OPTIONS_HPP_

#include <cstdint>
#include <string>

#include "opkit/base/timeout.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct MemorySearchOptions {
  // time_budget and max_steps bound the search that follows the greedy portfolio. The search also
  // ends as soon as the arena is as small as the lower bound. Zero for either: the portfolio alone.
  Timeout time_budget = {};
  // Steps of the search, each about 5 ns. A plan limited by steps alone is the same on every
  // machine. The default (-1) is no limit with a time budget, and kDefaultSteps without one. If
  // conflicts are more than overlapping spans, the default is at most kStepsPerSquare times the
  // square of the buffers: that search cannot prove that no lower plan exists, and finds little
  // more after 3,000 moves.
  int64_t max_steps = -1;
  static constexpr int64_t kDefaultSteps = 10'000'000;
  static constexpr int64_t kStepsPerSquare = 400;
  uint64_t seed = 0;
  // The search stops at an arena of at most this size.
  int64_t enough_bytes = 0;
  // The search to use: "skyline" (if conflicts are exactly the overlapping spans) or "annealing"
  // (at most 8,192 buffers). If the search cannot take the buffers, the portfolio's plan stays.
  // Empty: the first search that can. Planning throws kNotFound, with the nearest name, for others.
  std::string name = {};
};

}}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_SEARCH_OPTIONS_HPP_
