#include "opkit/graph/lifetimes.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "../error_of.hpp"
#include "opkit/op/random.hpp"

namespace {

using opkit::FindLifetimes;
using opkit::InPlaceOption;
using opkit::LifetimeOptions;
using opkit::MemoryLifetimes;
using opkit::RandomGenerator;
using opkit::RunOrder;
using opkit::RunValue;

using Pairs = std::vector<std::pair<int, int>>;

RunOrder Order(int nodes, const Pairs& edges) {
  RunOrder run;
  run.nodes = nodes;
  for (auto [before, after] : edges) {
    run.before.push_back(before);
    run.after.push_back(after);
  }
  return run;
}

RunOrder Walk(RunOrder run) {
  for (int i = 0; i < run.nodes; ++i) run.stages.push_back(i);
  return run;
}

RunValue Value(int64_t bytes, int producer, std::vector<int> users) {
  RunValue value;
  value.bytes = bytes;
  value.producer = producer;
  value.users = std::move(users);
  return value;
}

// Whether values a and b are in buffers that conflict; both must be planned.
bool Conflict(const MemoryLifetimes& lifetimes, size_t a, size_t b) {
  const int i = lifetimes.buffer_of[a], j = lifetimes.buffer_of[b];
  if (lifetimes.conflicts.empty()) {
    const opkit::MemoryInterval& x = lifetimes.buffers[static_cast<size_t>(i)];
    const opkit::MemoryInterval& y = lifetimes.buffers[static_cast<size_t>(j)];
    return x.lower < y.upper && y.lower < x.upper;
  }
  for (int64_t at = lifetimes.conflicts.starts[static_cast<size_t>(i)];
       at < lifetimes.conflicts.starts[static_cast<size_t>(i) + 1]; ++at)
    if (lifetimes.conflicts.others[static_cast<size_t>(at)] == j) return true;
  return false;
}

TEST_CASE("values of a chain conflict with the next one only") {
  // v0 -0-> v1 -1-> v2 -2-> v3 -3->
  const RunOrder chain = Order(4, {{0, 1}, {1, 2}, {2, 3}});
  const std::vector<RunValue> values = {Value(8, -1, {0}), Value(8, 0, {1}), Value(8, 1, {2}),
                                        Value(8, 2, {3})};
  for (const RunOrder& run : {chain, Walk(chain)})
    for (const int exact_nodes : {0, 100}) {
      const MemoryLifetimes lifetimes = FindLifetimes(run, values, {}, {exact_nodes});
      REQUIRE(lifetimes.buffers.size() == 4);
      for (size_t a = 0; a < 4; ++a)
        for (size_t b = a + 1; b < 4; ++b) CHECK(Conflict(lifetimes, a, b) == (b == a + 1));
    }
}

TEST_CASE("branches that may run together conflict, on one thread they do not") {
  // 0 feeds 1 -> 2 and 3 -> 4; v1 and v2 are made in the branches.
  const RunOrder fork = Order(5, {{0, 1}, {1, 2}, {0, 3}, {3, 4}});
  const std::vector<RunValue> values = {Value(8, 1, {2}), Value(8, 3, {4})};
  CHECK(Conflict(FindLifetimes(fork, values), 0, 1));
  CHECK(Conflict(FindLifetimes(fork, values, {}, {0}), 0, 1));
  CHECK_FALSE(Conflict(FindLifetimes(Walk(fork), values), 0, 1));
  RunOrder levels = fork;
  levels.stages = {0, 1, 2, 2, 3};  // step 3 starts when 1 is done, beside 2
  CHECK(Conflict(FindLifetimes(levels, values), 0, 1));
  levels.stages = {0, 1, 2, 3, 4};
  CHECK_FALSE(Conflict(FindLifetimes(levels, values), 0, 1));
}

}  // namespace
