#include "opkit/graph/memory/plan_memory.hpp"
#include "support/sanitizers.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "guillotine.hpp"
#include "opkit/op/random.hpp"
#include "support/error_of.hpp"

namespace plan_memory_test { namespace {

using opkit::ErrorCode;
using opkit::MemoryConflicts;
using opkit::MemoryInterval;
using opkit::MemoryPlan;
using opkit::MemorySearchOptions;
using opkit::PlanMemory;
using opkit::RandomGenerator;
using opkit::Timeout;

const MemorySearchOptions kPortfolio{.time_budget = {}, .max_steps = 0};

// By the definition, pair by pair: what is wrong with the plan, or nothing.
std::string Fault(const std::vector<MemoryInterval>& buffers, const MemoryPlan& plan) {
  if (plan.offsets.size() != buffers.size()) return "the number of offsets";
  int64_t end = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (plan.offsets[i] < 0 || plan.offsets[i] % buffers[i].alignment != 0)
      return "the offset of " + std::to_string(i);
    end = (std::max)(end, plan.offsets[i] + buffers[i].size);
    for (size_t j = 0; j < i; ++j)
      if (buffers[i].lower < buffers[j].upper && buffers[j].lower < buffers[i].upper &&
          plan.offsets[i] < plan.offsets[j] + buffers[j].size &&
          plan.offsets[j] < plan.offsets[i] + buffers[i].size)
        return std::to_string(i) + " and " + std::to_string(j) + " overlap";
  }
  if (end > plan.arena_bytes) return "the arena ends before a buffer does";
  if (plan.arena_bytes < plan.lower_bound_bytes) return "the arena is below the lower bound";
  if (plan.arena_bytes > plan.naive_bytes && buffers.size() == 1) return "worse than naive";
  return "";
}

std::vector<MemoryInterval> RandomIntervals(RandomGenerator& random, int count, int64_t time,
                                            int64_t length, int64_t bytes, bool aligned) {
  std::vector<MemoryInterval> buffers;
  for (int i = 0; i < count; ++i) {
    MemoryInterval buffer;
    buffer.lower = static_cast<int64_t>(random() % static_cast<uint64_t>(time));
    buffer.upper =
        buffer.lower + 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(length));
    buffer.size = static_cast<int64_t>(random() % static_cast<uint64_t>(bytes));
    if (aligned) buffer.alignment = int64_t{1} << (random() % 8);
    buffers.push_back(buffer);
  }
  return buffers;
}

TEST_CASE("buffers that are never live together share their bytes") {
  const MemoryPlan plan = PlanMemory({{0, 2, 1024}, {1, 3, 512}, {2, 4, 1024}});
  CHECK(plan.arena_bytes == 1536);
  CHECK(plan.lower_bound_bytes == 1536);
  CHECK(plan.naive_bytes == 2560);
  CHECK(plan.ratio() == 1.0);
  CHECK(plan.offsets[0] == plan.offsets[2]);
  CHECK(plan.seconds > 0);
  CHECK(std::string(plan.method) != "none");
}

TEST_CASE("nothing, and buffers without bytes, need no arena") {
  const MemoryPlan none = PlanMemory(std::vector<MemoryInterval>{});
  CHECK(none.arena_bytes == 0);
  CHECK(none.ratio() == 1.0);
  CHECK(none.offsets.empty());
  const MemoryPlan plan = PlanMemory({{0, 1, 0}, {0, 1, 8}, {0, 1, 0, 4096}});
  CHECK(plan.arena_bytes == 8);
  CHECK(plan.lower_bound_bytes == 8);
  CHECK(plan.offsets == std::vector<int64_t>{0, 0, 0});
}

TEST_CASE("the lower bound is the largest live set, half-open in time") {
  CHECK(PlanMemory({{0, 5, 10}, {5, 9, 10}}).lower_bound_bytes == 10);
  CHECK(PlanMemory({{0, 5, 10}, {4, 9, 10}, {4, 5, 1}}).lower_bound_bytes == 21);
  CHECK(PlanMemory({{-9, -5, 10}, {INT64_MIN, INT64_MAX, 7}}).lower_bound_bytes == 17);
}

TEST_CASE("offsets are aligned, sizes count rounded up to the smallest alignment") {
  const MemoryPlan plan = PlanMemory({{0, 9, 1, 64}, {0, 9, 65, 64}, {0, 9, 1, 256}});
  CHECK(plan.lower_bound_bytes == 64 + 128 + 64);
  CHECK(plan.naive_bytes == 256);
  CHECK(plan.arena_bytes == 256);
  CHECK(plan.offsets[2] == 0);
  CHECK(PlanMemory({{0, 1, 3, 2}, {0, 1, 5, 1}}).lower_bound_bytes == 8);
}

TEST_CASE("random plans are sound for all sizes, spans and alignments") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    RandomGenerator random(seed);
    const int count = static_cast<int>(random() % 60);
    const int64_t bytes = random() % 2 ? 20 : int64_t{1} << (10 + random() % 40);
    const std::vector<MemoryInterval> buffers =
        RandomIntervals(random, count, 1 + static_cast<int64_t>(random() % 50),
                        1 + static_cast<int64_t>(random() % 20), bytes, random() % 2 == 0);
    for (const int64_t steps : {0, 3000}) {
      const MemoryPlan plan = PlanMemory(
          buffers, MemorySearchOptions{.time_budget = {}, .max_steps = steps, .seed = seed});
      REQUIRE(Fault(buffers, plan) == "");
    }
  }
}

TEST_CASE("bad buffers are refused by their index, with the expected value") {
  const auto message = [](const std::vector<MemoryInterval>& buffers) {
    const opkit::Error error = ErrorOf([&] { (void)PlanMemory(buffers); });
    return std::string(ToString(error.code())) + ": " + error.message();
  };
  CHECK(message({{0, 1, 4}, {3, 3, 4}}) ==
        "invalid argument: buffer 1 is live in [3, 3): expected lower < upper");
  CHECK(message({{4, 3, 4}}) ==
        "invalid argument: buffer 0 is live in [4, 3): expected lower < upper");
  CHECK(message({{0, 1, -4}}) == "invalid argument: buffer 0 has -4 bytes: expected 0 or more");
  for (const char* alignment : {"0", "3", "-8"})
    CHECK(message({{0, 1, 4, std::stoll(alignment)}}) ==
          std::string("invalid argument: buffer 0 has alignment ") + alignment +
              ": expected a power of two");
  const int64_t most = std::numeric_limits<int64_t>::max();
  CHECK(message({{0, 1, most}, {2, 3, 1}}) ==
        "out of range: the buffers' sizes add up to more than an int64 holds at buffer 1 of 1 "
        "bytes");
  CHECK(message({{0, 1, most, 2}}) ==
        "out of range: the buffers' sizes add up to more than an int64 holds at buffer 0 of "
        "9223372036854775807 bytes");
  CHECK(message({{0, 1, 1, int64_t{1} << 62}, {0, 1, 1, 1}, {0, 1, 1, int64_t{1} << 62}}) ==
        "out of range: the buffers' sizes add up to more than an int64 holds at buffer 2 of 1 "
        "bytes");
}

TEST_CASE("sizes near the limits of an int64 are planned") {
  const int64_t huge = int64_t{1} << 60;
  const MemoryPlan plan = PlanMemory({{0, 2, huge + 1}, {1, 3, huge}, {2, 4, huge - 1}});
  CHECK(Fault({{0, 2, huge + 1}, {1, 3, huge}, {2, 4, huge - 1}}, plan) == "");
  CHECK(plan.ratio() < 1.00001);
}

TEST_CASE("conflicts decide where they are given") {
  // Three buffers one after the other in the stored order, but 0 and 2 may run together.
  const std::vector<MemoryInterval> buffers = {{0, 1, 10}, {1, 2, 10}, {2, 3, 10}};
  const MemoryConflicts conflicts{{0, 1, 1, 2}, {2, 0}};
  const MemoryPlan plan = PlanMemory(buffers, conflicts);
  CHECK(plan.arena_bytes == 20);
  CHECK(plan.lower_bound_bytes == 20);
  CHECK(plan.offsets[0] != plan.offsets[2]);
  CHECK(PlanMemory(buffers, MemoryConflicts{{0, 0, 0, 0}, {}}).arena_bytes == 10);
}

TEST_CASE("conflict lists that do not hold together are refused") {
  const std::vector<MemoryInterval> buffers = {{0, 2, 10}, {1, 3, 10}, {2, 4, 10}};
  const auto message = [&](const MemoryConflicts& conflicts) {
    return ErrorOf([&] { (void)PlanMemory(buffers, conflicts); }).message();
  };
  CHECK(message({{0, 1}, {2}}) ==
        "expected the starts of 3 conflict lists and their end, from 0 to 1; found 2 numbers");
  CHECK(message({{0, 2, 1, 2}, {1, 2}}) ==
        "the conflict list of buffer 1 ends at 1, before its start at 2");
  CHECK(message({{0, 1, 1, 1}, {3}}) ==
        "buffer 0 lists a conflict with buffer 3: expected another of the 3 buffers");
  CHECK(message({{0, 0, 1, 1}, {1}}) ==
        "buffer 1 lists a conflict with buffer 1: expected another of the 3 buffers");
  CHECK(message({{0, 1, 1, 1}, {1}}) ==
        "expected every conflict on the lists of both buffers; the lists of buffer 0 and its "
        "partners do not agree");
  CHECK(message({{0, 1, 2, 2}, {1, 0}}) ==
        "the spans of 2 pairs of buffers overlap, but only 1 of these pairs are listed as "
        "conflicts");
}

TEST_CASE("the lower bound of conflicts counts sets that no one order has live together") {
  // 0, 1 and 2 conflict pairwise; the stored order has only two of them live at a time.
  const std::vector<MemoryInterval> buffers = {{0, 2, 10}, {1, 3, 10}, {2, 4, 10}};
  const MemoryPlan plan = PlanMemory(buffers, MemoryConflicts{{0, 2, 4, 6}, {1, 2, 0, 2, 0, 1}});
  CHECK(plan.lower_bound_bytes == 30);
  CHECK(plan.arena_bytes == 30);
}

TEST_CASE("a plan that cannot be smaller is not searched for") {
  // 0 comes before the others, which run side by side; it alone is the largest of any one order.
  const std::vector<MemoryInterval> buffers = {{0, 1, 10}, {1, 2, 7}, {2, 3, 7}, {3, 4, 7}};
  const MemoryPlan plan = PlanMemory(buffers, MemoryConflicts{{0, 0, 2, 4, 6}, {2, 3, 1, 3, 1, 2}});
  CHECK(plan.arena_bytes == 21);
  CHECK(plan.lower_bound_bytes == 21);
  CHECK(plan.steps == 0);
}

// Buffers of one step each in a random partial order; 0, 1, 2, … is one legal order.
struct PartialOrder {
  std::vector<MemoryInterval> buffers;
  MemoryConflicts conflicts;
  std::vector<std::vector<bool>> conflict;

  PartialOrder(int count, uint64_t one_in, RandomGenerator& random) {
    const auto n = static_cast<size_t>(count);
    conflict.assign(n, std::vector<bool>(n, true));
    for (size_t i = 0; i < n; ++i) {
      const auto at = static_cast<int64_t>(i);
      buffers.push_back({at, at + 1, 1 + static_cast<int64_t>(random() % 1000)});
      conflict[i][i] = false;
      for (size_t j = i; j-- > 0;)
        if (conflict[j][i] && random() % one_in == 0)
          for (size_t k = 0; k <= j; ++k)
            if (k == j || !conflict[k][j]) conflict[k][i] = conflict[i][k] = false;
    }
    for (size_t i = 0; i < n; ++i) {
      conflicts.starts.push_back(static_cast<int64_t>(conflicts.others.size()));
      for (size_t j = 0; j < n; ++j)
        if (conflict[i][j]) conflicts.others.push_back(static_cast<int>(j));
    }
    conflicts.starts.push_back(static_cast<int64_t>(conflicts.others.size()));
  }

  int64_t LargestSet() const {
    int64_t largest = 0;
    for (uint64_t set = 0; set < uint64_t{1} << buffers.size(); ++set) {
      int64_t bytes = 0;
      for (size_t i = 0; i < buffers.size() && bytes >= 0; ++i) {
        if (!((set >> i) & 1)) continue;
        bytes += buffers[i].size;
        for (size_t j = 0; j < i; ++j)
          if (((set >> j) & 1) && !conflict[i][j]) bytes = INT64_MIN;
      }
      largest = (std::max)(largest, bytes);
    }
    return largest;
  }
};

TEST_CASE("the lower bound of a partial order is its largest set of conflicting buffers") {
  int perfect = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    RandomGenerator random(seed);
    const PartialOrder order(11, 2 + random() % 8, random);
    const MemoryPlan plan = PlanMemory(order.buffers, order.conflicts);
    REQUIRE(plan.lower_bound_bytes == order.LargestSet());
    perfect += plan.ratio() == 1.0;
  }
  CHECK(perfect > 190);
}

TEST_CASE("a search that cannot prove its plan ends after steps by the square of the buffers") {
  // Five in a ring, each in conflict with the next: no two are larger than 2, no plan is below 3.
  MemoryConflicts ring;
  std::vector<MemoryInterval> buffers;
  for (int copy = 0; copy < 4; ++copy)
    for (int i = 0; i < 5; ++i) {
      const int64_t at = 5 * copy + i;
      buffers.push_back({at, at + 1, 1});
      ring.starts.push_back(2 * at);
      for (const int other : {(i + 1) % 5, (i + 4) % 5}) ring.others.push_back(5 * copy + other);
    }
  ring.starts.push_back(2 * static_cast<int64_t>(buffers.size()));
  const auto steps = [&](MemorySearchOptions options) {
    const MemoryPlan plan = PlanMemory(buffers, ring, options);
    CHECK(plan.arena_bytes == 3);
    CHECK(plan.lower_bound_bytes == 2);
    return plan.steps;
  };
  const auto count = static_cast<int64_t>(buffers.size());
  const int64_t move = count * count;  // more than the last one takes
  CHECK(steps({}) >= count * count * MemorySearchOptions::kStepsPerSquare);
  CHECK(steps({}) <= count * count * MemorySearchOptions::kStepsPerSquare + move);
  CHECK(steps({.max_steps = 1000}) <= 1000 + move);
  CHECK(steps({.max_steps = 0}) == 0);
}

TEST_CASE("a plan limited only by steps is the same each time") {
  RandomGenerator random(5);
  const std::vector<MemoryInterval> buffers = RandomIntervals(random, 150, 60, 30, 1000, false);
  const MemorySearchOptions options{.time_budget = {}, .max_steps = 50'000, .seed = 3};
  const MemoryPlan first = PlanMemory(buffers, options);
  const MemoryPlan second = PlanMemory(buffers, options);
  CHECK(first.offsets == second.offsets);
  CHECK(std::string(first.method) == second.method);
}

TEST_CASE("known perfect packings are bounded by the arena they were cut from") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    RandomGenerator random(seed);
    const std::vector<MemoryInterval> buffers = CutRectangle(100, 1000, 2048, random);
    CHECK(buffers.size() == 100);
    const MemoryPlan plan = PlanMemory(buffers, kPortfolio);
    REQUIRE(Fault(buffers, plan) == "");
    CHECK(plan.lower_bound_bytes == 2048);  // every moment is full
  }
}

// The smallest arena there is: every plan packed downwards is some order of buffers, each on top of
// what was stacked before it.
int64_t SmallestArena(const std::vector<MemoryInterval>& buffers) {
  std::vector<size_t> order(buffers.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  int64_t smallest = std::numeric_limits<int64_t>::max();
  do {
    std::vector<int64_t> offsets(buffers.size(), 0);
    int64_t arena = 0;
    for (size_t at = 0; at < order.size(); ++at) {
      const MemoryInterval& buffer = buffers[order[at]];
      int64_t offset = 0;
      for (size_t below = 0; below < at; ++below) {
        const MemoryInterval& other = buffers[order[below]];
        if (other.lower < buffer.upper && buffer.lower < other.upper)
          offset = (std::max)(offset, offsets[order[below]] + other.size);
      }
      offsets[order[at]] = (offset + buffer.alignment - 1) / buffer.alignment * buffer.alignment;
      arena = (std::max)(arena, offsets[order[at]] + buffer.size);
    }
    smallest = (std::min)(smallest, arena);
  } while (std::next_permutation(order.begin(), order.end()));
  return smallest;
}

TEST_CASE("small plans are as small as any") {
  int above_bound = 0;
  for (uint64_t seed = 0; seed < Rounds(300u); ++seed) {
    CAPTURE(seed);
    RandomGenerator random(seed);
    std::vector<MemoryInterval> buffers = RandomIntervals(random, 7, 10, 6, 12, random() % 2 == 0);
    for (MemoryInterval& buffer : buffers) {
      ++buffer.size;
      if (buffer.alignment > 8) buffer.alignment = 1;
    }
    buffers[0].alignment = 1;  // sizes are not rounded up
    const MemoryPlan plan = PlanMemory(buffers);
    REQUIRE(Fault(buffers, plan) == "");
    REQUIRE(plan.arena_bytes == SmallestArena(buffers));
    above_bound += plan.arena_bytes > plan.lower_bound_bytes;
  }
  CHECK(above_bound > Rounds(5));  // some have no perfect plan, and the search knows
}

TEST_CASE("the search finds perfect packings of hundreds of buffers within its default steps") {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    CAPTURE(seed);
    RandomGenerator random(seed);
    const std::vector<MemoryInterval> buffers = CutRectangle(250, 1000, 1 << 20, random);
    const MemoryPlan plan = PlanMemory(buffers);
    REQUIRE(Fault(buffers, plan) == "");
    CHECK(plan.ratio() == 1.0);
    CHECK(PlanMemory(buffers, kPortfolio).ratio() > 1.0);
  }
}

TEST_CASE("annealing lowers plans whose conflicts are listed") {
  RandomGenerator random(7);
  const std::vector<MemoryInterval> buffers = RandomIntervals(random, 120, 60, 30, 1000, false);
  // The conflicts of the spans, and one in forty of the other pairs.
  const size_t n = buffers.size();
  std::vector<std::vector<int>> lists(n);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < i; ++j)
      if ((buffers[i].lower < buffers[j].upper && buffers[j].lower < buffers[i].upper) ||
          random() % 40 == 0) {
        lists[i].push_back(static_cast<int>(j));
        lists[j].push_back(static_cast<int>(i));
      }
  MemoryConflicts conflicts;
  for (const std::vector<int>& list : lists) {
    conflicts.starts.push_back(static_cast<int64_t>(conflicts.others.size()));
    conflicts.others.insert(conflicts.others.end(), list.begin(), list.end());
  }
  conflicts.starts.push_back(static_cast<int64_t>(conflicts.others.size()));
  const MemoryPlan greedy = PlanMemory(buffers, conflicts, kPortfolio);
  const MemoryPlan plan = PlanMemory(buffers, conflicts);
  CHECK(Fault(buffers, plan) == "");
  for (size_t i = 0; i < n; ++i)
    for (int j : lists[i]) {
      const auto other = static_cast<size_t>(j);
      REQUIRE((plan.offsets[i] >= plan.offsets[other] + buffers[other].size ||
               plan.offsets[other] >= plan.offsets[i] + buffers[i].size || buffers[i].size == 0 ||
               buffers[other].size == 0));
    }
  CHECK(plan.arena_bytes < greedy.arena_bytes);
  CHECK(std::string(plan.method) == "annealing");
}

TEST_CASE("a search is chosen by name; a name that there is not is refused with the nearest") {
  RandomGenerator random(4);
  const std::vector<MemoryInterval> buffers = CutRectangle(150, 10'000, 1 << 20, random);
  const auto plan = [&](const char* search) {
    MemorySearchOptions options;
    options.name = search;
    return PlanMemory(buffers, options);
  };
  CHECK(std::string(plan("skyline").method) == "search");
  CHECK(plan("").offsets == plan("skyline").offsets);  // spans decide: the first that can
  const MemoryPlan annealed = plan("annealing");
  CHECK(std::string(annealed.method) == "annealing");
  CHECK(Fault(buffers, annealed) == "");
  const opkit::Error error = ErrorOf([&] { (void)plan("skylime"); });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(error.message() ==
        "the memory planner has no search 'skylime' (did you mean 'skyline'? known: 'skyline', "
        "'annealing')");
}

TEST_CASE("a search that cannot take the buffers leaves the plan of the portfolio") {
  MemoryConflicts all;  // more than the spans say
  std::vector<MemoryInterval> buffers;
  RandomGenerator random(1);
  for (int i = 0; i < 40; ++i) {
    buffers.push_back({i, i + 1, 1 + static_cast<int64_t>(random() % 9), 4});
    all.starts.push_back(static_cast<int64_t>(all.others.size()));
    for (int other = 0; other < 40; ++other)
      if (other != i && other % 3 != i % 3) all.others.push_back(other);
  }
  all.starts.push_back(static_cast<int64_t>(all.others.size()));
  MemorySearchOptions options = kPortfolio;
  const MemoryPlan greedy = PlanMemory(buffers, all, options);
  options.max_steps = -1;
  options.name = "skyline";
  const MemoryPlan plan = PlanMemory(buffers, all, options);
  CHECK(plan.steps == 0);
  CHECK(plan.offsets == greedy.offsets);
}

TEST_CASE("an arena that is small enough ends the search") {
  RandomGenerator random(1);
  const std::vector<MemoryInterval> buffers = CutRectangle(300, 1000, 1 << 20, random);
  const MemoryPlan portfolio = PlanMemory(buffers, kPortfolio);
  const MemoryPlan plan =
      PlanMemory(buffers, MemorySearchOptions{.enough_bytes = portfolio.arena_bytes});
  CHECK(plan.offsets.size() == portfolio.offsets.size());
  CHECK(plan.arena_bytes <= portfolio.arena_bytes);
  CHECK(std::string(plan.method).substr(0, 6) == "greedy");
}

TEST_CASE("more conflicts than can be listed are planned soundly too") {
  // 6,000 buffers, nearly all live together: 18 million pairs.
  RandomGenerator random(2);
  std::vector<MemoryInterval> buffers = RandomIntervals(random, 6000, 100, 100, 1000, true);
  for (MemoryInterval& buffer : buffers) buffer.upper += 100;
  const MemoryPlan plan = PlanMemory(buffers, kPortfolio);
  CHECK(Fault(buffers, plan) == "");
  CHECK(plan.ratio() < 1.3);
}

}  // namespace
}  // namespace plan_memory_test
