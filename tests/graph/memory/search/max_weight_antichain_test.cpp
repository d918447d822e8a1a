#include "opkit/graph/memory/search/max_weight_antichain.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "opkit/op/random.hpp"
#include "support/sanitizers.hpp"

namespace max_weight_antichain_test { namespace {

using opkit::MemoryConflicts;
using opkit::MemoryInterval;
using opkit::RandomGenerator;
using opkit::detail::MaxWeightAntichain;
using opkit::detail::MemoryProblem;

// The heaviest of all sets of buffers that conflict with each other, tried one by one.
int64_t Heaviest(const std::vector<MemoryInterval>& buffers, const MemoryConflicts& conflicts) {
  int64_t heaviest = 0;
  for (unsigned set = 0; set < 1u << buffers.size(); ++set) {
    int64_t weight = 0;
    for (size_t i = 0; i < buffers.size(); ++i) {
      if (!(set >> i & 1)) continue;
      weight += buffers[i].size;
      const auto partners = conflicts.of(i);
      for (size_t j = 0; j < buffers.size(); ++j)
        if (i != j && set >> j & 1 &&
            std::find(partners.begin(), partners.end(), static_cast<int>(j)) == partners.end())
          weight = INT64_MIN / 2;
    }
    heaviest = std::max(heaviest, weight);
  }
  return heaviest;
}

// Steps in a partial order that is random; buffers are live from their step to the last user, and
// conflict unless every user of one precedes the other.
TEST_CASE("the bound is the heaviest set of buffers that are all in conflict") {
  int above_spans = 0;
  for (uint64_t seed = 0; seed < Rounds(300u); ++seed) {
    CAPTURE(seed);
    RandomGenerator random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
    constexpr size_t kCount = 9;
    std::vector<MemoryInterval> buffers(kCount);
    bool later[kCount][kCount] = {};  // j comes after i, and takes its bytes
    for (size_t j = 0; j < kCount; ++j) {
      buffers[j].size = 1 + below(9);
      for (size_t i = 0; i < j; ++i) later[i][j] = below(3) == 0;
    }
    for (size_t k = 0; k < kCount; ++k)
      for (size_t i = 0; i < k; ++i)
        for (size_t j = k + 1; j < kCount; ++j) later[i][j] |= later[i][k] && later[k][j];
    MemoryConflicts conflicts{{0}, {}};
    for (size_t i = 0; i < kCount; ++i) {
      buffers[i].lower = static_cast<int64_t>(i);
      buffers[i].upper = static_cast<int64_t>(i) + 1;
      for (size_t j = 0; j < kCount; ++j)
        if (i != j && !later[i][j] && !later[j][i]) conflicts.others.push_back(static_cast<int>(j));
      conflicts.starts.push_back(static_cast<int64_t>(conflicts.others.size()));
    }
    MemoryProblem problem;
    MeasureBuffers(buffers, &problem);
    CutSections(buffers, &problem);
    const int of_spans = problem.bound;
    TakeConflicts(conflicts, buffers.size(), &problem);
    const int64_t weight = MaxWeightAntichain(problem).Weight() * problem.unit;
    REQUIRE(weight == Heaviest(buffers, conflicts));
    CHECK(weight >= problem.bound * problem.unit);
    above_spans += weight > of_spans * problem.unit;
  }
  CHECK(above_spans > 0);
}

}  // namespace
}  // namespace max_weight_antichain_test
