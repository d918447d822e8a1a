// The planner's form of its input: units, sections of time and lists of conflicts.
#include "opkit/graph/memory/problem.hpp"

#include <doctest/doctest.h>

#include "memory_problem.hpp"
#include "opkit/graph/memory/bit_matrix.hpp"
#include "opkit/op/random.hpp"

namespace problem_test { namespace {

using opkit::MemoryInterval;
using opkit::RandomGenerator;
using opkit::detail::BitMatrix;
using opkit::detail::FlatLists;
using opkit::detail::MemoryProblem;
using opkit::detail::Peaks;
using opkit::detail::Placing;

std::vector<int> List(const FlatLists& lists, size_t i) {
  return {lists.of(i).begin(), lists.of(i).end()};
}

TEST_CASE("sizes are counted in the largest unit that divides them and the alignments") {
  const MemoryProblem problem = MakeProblem({{0, 1, 96, 16}, {0, 1, 160, 32}, {0, 1, 0, 8}});
  CHECK(problem.count == 2);  // the empty buffer is left out
  CHECK(problem.buffer == std::vector<int>{0, 1});
  CHECK(problem.unit == 32);
  CHECK(problem.size == std::vector<int>{3, 5});
  CHECK(problem.alignment == std::vector<int>{1, 1});
  CHECK(problem.naive_bytes == 256);
}

TEST_CASE("sizes are rounded up to the smallest alignment") {
  const MemoryProblem problem = MakeProblem({{0, 1, 5, 8}, {0, 1, 17, 16}});
  CHECK(problem.rounding == 8);
  CHECK(problem.unit == 8);
  CHECK(problem.size == std::vector<int>{1, 3});
  CHECK(problem.alignment == std::vector<int>{1, 2});
}

TEST_CASE("time is cut only where a buffer ends after another began") {
  // Two generations; in each, one buffer begins and ends inside the other's span.
  const MemoryProblem problem =
      MakeProblem({{0, 100, 4}, {10, 20, 2}, {100, 300, 8}, {200, 250, 1}});
  CHECK(problem.sections == 2);
  CHECK(problem.lower == std::vector<int>{0, 0, 1, 1});
  CHECK(problem.upper == std::vector<int>{1, 1, 2, 2});
  CHECK(problem.total[0] == 6);
  CHECK(problem.total[1] == 9);
  CHECK(problem.bound == 9);
  CHECK(Peaks(problem) == std::vector<int64_t>{6, 6, 9, 9});
}

TEST_CASE("the conflicts are the pairs whose spans overlap") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    CAPTURE(seed);
    RandomGenerator random(seed);
    std::vector<MemoryInterval> buffers;
    for (int i = 0; i < 20; ++i) {
      const auto lower = static_cast<int64_t>(random() % 10);
      buffers.push_back({lower, lower + 1 + static_cast<int64_t>(random() % 5), 1});
    }
    const MemoryProblem problem = MakeProblem(buffers);
    int64_t pairs = 0;
    for (size_t i = 0; i < buffers.size(); ++i) {
      std::vector<int> expected;
      for (size_t j = 0; j < buffers.size(); ++j)
        if (i != j && buffers[i].lower < buffers[j].upper && buffers[j].lower < buffers[i].upper)
          expected.push_back(static_cast<int>(j));
      std::vector<int> found = List(problem.conflicts, i);
      std::sort(found.begin(), found.end());
      REQUIRE(found == expected);
      pairs += static_cast<int64_t>(expected.size());
    }
    CHECK(2 * problem.pairs == pairs);
  }
}

TEST_CASE("conflicts in addition to those of the spans raise the bound") {
  // 0, 1 and 2 follow each other, and yet all conflict.
  const opkit::MemoryConflicts conflicts{{0, 2, 4, 6}, {1, 2, 0, 2, 0, 1}};
  const std::vector<MemoryInterval> buffers = {{0, 1, 3}, {1, 2, 4}, {2, 3, 5}};
  MemoryProblem problem;
  MeasureBuffers(buffers, &problem);
  CutSections(buffers, &problem);
  CHECK(problem.bound == 5);
  TakeConflicts(conflicts, buffers.size(), &problem);
  CHECK_FALSE(problem.spans_decide);
  CHECK(problem.pairs == 3);
  CHECK(problem.bound == 12);
}

TEST_CASE("the lower of two placings is kept, the first of equal ones") {
  Placing best;
  best.KeepLower({1}, 7, "first");
  best.KeepLower({2}, 7, "second");
  CHECK(best.method == std::string("first"));
  best.KeepLower({3}, 6, "third");
  CHECK(best.method == std::string("third"));
  CHECK(best.offsets == std::vector<int>{3});
}

TEST_CASE("lists are stored one behind the other, each from its last item to its first") {
  const FlatLists lists(3, [](auto add) {
    add(2, 7);
    add(0, 5);
    add(2, 6);
  });
  CHECK(List(lists, 0) == std::vector<int>{5});
  CHECK(List(lists, 1).empty());
  CHECK(List(lists, 2) == std::vector<int>{6, 7});
  CHECK(FlatLists().empty());
}

TEST_CASE("a row of bits takes in another row") {
  BitMatrix bits(3, 130);
  bits.Set(0, 0);
  bits.Set(0, 64);
  bits.Set(1, 129);
  bits.Include(1, 0);
  for (size_t j = 0; j < 130; ++j) {
    CAPTURE(j);
    CHECK(bits.Get(0, j) == (j == 0 || j == 64));
    CHECK(bits.Get(1, j) == (j == 0 || j == 64 || j == 129));
    CHECK_FALSE(bits.Get(2, j));
  }
  bits.Clear(1, 64);
  CHECK_FALSE(bits.Get(1, 64));
  CHECK(bits.Get(0, 64));
}

}  // namespace
}  // namespace problem_test
