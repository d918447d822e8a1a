#include "opkit/graph/memory/search/skyline_search.hpp"
#include "support/sanitizers.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "opkit/graph/memory/search/fit.hpp"
#include "opkit/op/random.hpp"

namespace skyline_search_test { namespace {

using opkit::MemoryInterval;
using opkit::RandomGenerator;
using opkit::detail::MemoryProblem;
using opkit::detail::SearchEnd;
using opkit::detail::SkylineSearch;

MemoryProblem Problem(const std::vector<MemoryInterval>& buffers) {
  MemoryProblem problem;
  MeasureBuffers(buffers, &problem);
  CutSections(buffers, &problem);
  ListConflicts(&problem);
  return problem;
}

// Every plan packed downwards stacks buffers in some order, so the lowest of all orders is the
// lowest there is.
int LowestHeight(const MemoryProblem& problem) {
  std::vector<int> order;
  opkit::detail::IndexedVector<int> offsets;
  for (int i = 0; i < problem.count; ++i) order.push_back(i);
  int lowest = std::numeric_limits<int>::max();
  do {
    lowest = std::min(lowest, PlaceOnSkyline(problem, order, &offsets));
  } while (std::next_permutation(order.begin(), order.end()));
  return lowest;
}

TEST_CASE("the search finds a placing where there is one and proves where there is none") {
  int proofs = 0;
  for (uint64_t seed = 0; seed < Rounds(1500u); ++seed) {
    CAPTURE(seed);
    RandomGenerator random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
    std::vector<MemoryInterval> buffers;
    for (int i = 0; i < 6; ++i) {
      MemoryInterval buffer;
      buffer.lower = below(5);
      buffer.upper = buffer.lower + 1 + below(3);
      buffer.size = 1 + below(5);
      if (seed % 4 == 0 && i > 0) buffer.alignment = 1 << below(3);
      buffers.push_back(buffer);
    }
    const MemoryProblem problem = Problem(buffers);
    const int lowest = LowestHeight(problem);
    opkit::detail::IndexedVector<int> rank;
    for (int i = 0; i < problem.count; ++i) rank.push_back(below(100));
    SkylineSearch search(problem);
    REQUIRE(search.Run(lowest, rank, 100'000, -1) == SearchEnd::kFound);
    REQUIRE(search.height() == lowest);
    if (lowest == problem.bound) continue;
    ++proofs;
    REQUIRE(search.Run(lowest - 1, rank, 100'000, -1) == SearchEnd::kImpossible);
  }
  CHECK(proofs > Rounds(50));
}

TEST_CASE("a search gives up at its number of nodes and can be run again") {
  RandomGenerator random(1);
  std::vector<MemoryInterval> buffers;
  for (int i = 0; i < 40; ++i) {
    const auto lower = static_cast<int64_t>(random() % 20);
    buffers.push_back({lower, lower + 1 + static_cast<int64_t>(random() % 6),
                       1 + static_cast<int64_t>(random() % 50)});
  }
  const MemoryProblem problem = Problem(buffers);
  const opkit::detail::IndexedVector<int> rank(40, 0);
  SkylineSearch search(problem);
  CHECK(search.Run(10 * problem.bound, rank, 5, -1) == SearchEnd::kGaveUp);
  CHECK(search.nodes() == 5);
  CHECK(search.Run(problem.bound - 1, rank, 5, -1) == SearchEnd::kImpossible);
  CHECK(search.nodes() == 0);  // no placing reaches below the bound
  CHECK(search.Run(10 * problem.bound, rank, 1000, -1) == SearchEnd::kFound);
}

}  // namespace
}  // namespace skyline_search_test
