// Makes the rectangles and problems that the tests of the searches start from.
#ifndef OPKIT_TESTS_GRAPH_MEMORY_RECTANGLE_HPP_
#define OPKIT_TESTS_GRAPH_MEMORY_RECTANGLE_HPP_

#include <vector>

#include "graph/memory/guillotine.hpp"
#include "graph/memory/memory_problem.hpp"

// The placing that stacks all buffers of a problem.
inline opkit::detail::Placing Stacked(const opkit::detail::MemoryProblem& problem) {
  opkit::detail::Placing out;
  std::vector<int> offsets;
  int height = 0;
  for (size_t i = 0; i < problem.size.size(); ++i) {
    offsets.push_back(opkit::detail::AlignUnits(height, problem.alignment[i]));
    height = offsets.back() + problem.size[i];
  }
  out.KeepLower(offsets, height, "stacked");
  return out;
}

// Buffers that fill a rectangle of 100 bytes, and a first placing that stacks them all.
struct Rectangle {
  explicit Rectangle(uint64_t seed, size_t count = 25)
      : random(seed),
        problem(MakeProblem(CutRectangle(count, 100, 100, random))),
        best(Stacked(problem)) {}
  opkit::RandomGenerator random;
  opkit::detail::MemoryProblem problem;
  opkit::detail::Placing best;
};

#endif  // OPKIT_TESTS_GRAPH_MEMORY_RECTANGLE_HPP_
