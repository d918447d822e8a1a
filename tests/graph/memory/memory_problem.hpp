// Buffers in the form that the memory planner works on, and what is wrong with a placing of them.
#ifndef OPKIT_TESTS_GRAPH_MEMORY_MEMORY_PROBLEM_HPP_
#define OPKIT_TESTS_GRAPH_MEMORY_MEMORY_PROBLEM_HPP_

#include <algorithm>
#include <string>
#include <vector>

#include "opkit/graph/memory/problem.hpp"
#include "opkit/op/random.hpp"

// With the conflicts of the spans listed.
inline opkit::detail::MemoryProblem MakeProblem(const std::vector<opkit::MemoryInterval>& buffers) {
  opkit::detail::MemoryProblem problem;
  MeasureBuffers(buffers, &problem);
  CutSections(buffers, &problem);
  ListConflicts(&problem);
  return problem;
}

// Buffers of 1 to 20 bytes that are live for 1 to 8 moments, aligned to 1, 2 or 4.
inline opkit::detail::MemoryProblem RandomProblem(opkit::RandomGenerator& random, int count) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  std::vector<opkit::MemoryInterval> buffers;
  for (int i = 0; i < count; ++i) {
    const int64_t lower = below(count);
    buffers.push_back({lower, lower + 1 + below(8), 1 + below(20), int64_t{1} << below(3)});
  }
  return MakeProblem(buffers);
}

// Empty for a placing that is right and as high as it says.
inline std::string PlacingFault(const opkit::detail::MemoryProblem& problem,
                                const std::vector<int>& offsets, int height) {
  if (offsets.size() != problem.size.size()) return "another number of buffers";
  int top = 0;
  for (size_t i = 0; i < offsets.size(); ++i) {
    if (offsets[i] < 0 || offsets[i] % problem.alignment[i] != 0) return "an offset is not aligned";
    top = std::max(top, offsets[i] + problem.size[i]);
    for (const int other : problem.conflicts.of(i)) {
      const auto j = static_cast<size_t>(other);
      if (offsets[i] < offsets[j] + problem.size[j] && offsets[j] < offsets[i] + problem.size[i])
        return "buffers " + std::to_string(i) + " and " + std::to_string(j) + " overlap";
    }
  }
  return top == height ? "" : "the height is " + std::to_string(top);
}

#endif  // OPKIT_TESTS_GRAPH_MEMORY_MEMORY_PROBLEM_HPP_
