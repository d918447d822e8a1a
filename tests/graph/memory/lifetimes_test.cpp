#include "opkit/graph/memory/lifetimes.hpp"
#include "support/sanitizers.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "opkit/graph/memory/verify.hpp"
#include "opkit/op/random.hpp"
#include "random_run.hpp"
#include "support/error_of.hpp"

namespace lifetimes_test { namespace {

using opkit::RandomGenerator;
using opkit::detail::FindLifetimes;
using opkit::detail::InPlaceOption;
using opkit::detail::LifetimeOptions;
using opkit::detail::MemoryLifetimes;
using opkit::detail::RunOrder;
using opkit::detail::RunValue;

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

// True if values a and b are in buffers that conflict; both must be planned.
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

TEST_CASE("a value lives from its producer to its last user, scratch while its step runs") {
  // 0 -> 1 -> 2 -> 3; v0 is read by 2, v1 is scratch of 1, v2 is made by 2, v3 by 3.
  const RunOrder chain = Order(4, {{0, 1}, {1, 2}, {2, 3}, {0, 2}});
  const std::vector<RunValue> values = {Value(8, 0, {2}), Value(8, 1, {}), Value(8, 2, {3}),
                                        Value(8, 3, {})};
  for (const RunOrder& run : {chain, Walk(chain)}) {
    const MemoryLifetimes lifetimes = FindLifetimes(run, values);
    CHECK(lifetimes.exact);
    CHECK(Conflict(lifetimes, 0, 1));
    CHECK(Conflict(lifetimes, 0, 2));
    CHECK_FALSE(Conflict(lifetimes, 0, 3));
    CHECK_FALSE(Conflict(lifetimes, 1, 2));
    CHECK(Conflict(lifetimes, 2, 3));
  }
}

TEST_CASE("an asynchronous step uses its values until the step that waits for it starts") {
  // On one thread: 0 returns at once and completes before 3 starts; 1 and 2 do not wait.
  RunOrder run = Walk(Order(4, {{0, 3}}));
  const std::vector<RunValue> values = {Value(8, 0, {}), Value(8, 1, {}), Value(8, 2, {}),
                                        Value(8, 3, {})};
  CHECK_FALSE(Conflict(FindLifetimes(run, values), 0, 1));
  run.asynchronous = {1, 0, 0, 0};
  const MemoryLifetimes lifetimes = FindLifetimes(run, values);
  CHECK(Conflict(lifetimes, 0, 1));
  CHECK(Conflict(lifetimes, 0, 2));
  CHECK_FALSE(Conflict(lifetimes, 0, 3));
  // no step waits for step 1, so its value lives to the end of the run
  run.asynchronous = {0, 1, 0, 0};
  CHECK(Conflict(FindLifetimes(run, values), 1, 3));
}

TEST_CASE("values there at the start, kept ones, external ones and views") {
  const RunOrder run = Order(4, {{0, 1}, {1, 2}, {2, 3}});
  std::vector<RunValue> values = {Value(8, -1, {2}), Value(8, 0, {1}), Value(16, 2, {}),
                                  Value(8, 3, {}),   Value(8, 0, {}),  Value(4, 1, {3})};
  values[1].kept = true;
  values[3].external = true;
  values[5].view_of = 4;  // keeps value 4 alive until step 3
  values[5].view_offset = 4;
  const MemoryLifetimes lifetimes = FindLifetimes(run, values);
  CHECK(Conflict(lifetimes, 0, 1));
  CHECK(Conflict(lifetimes, 0, 2));
  CHECK(Conflict(lifetimes, 1, 2));
  CHECK(lifetimes.buffer_of[3] == -1);
  CHECK(lifetimes.buffer_of[5] == lifetimes.buffer_of[4]);
  CHECK(lifetimes.offset_in_buffer[5] == 4);
  CHECK(Conflict(lifetimes, 4, 2));
  CHECK(lifetimes.buffers.size() == 4);
}

// True if step 1 may write v1 over v0, after `change` to a chain 0 -> 1 -> 2.
template <class F>
bool Granted(F&& change) {
  RunOrder run = Order(4, {{0, 1}, {1, 2}, {0, 3}});
  std::vector<RunValue> values = {Value(8, 0, {1}), Value(8, 1, {2})};
  change(run, values);
  const MemoryLifetimes lifetimes = FindLifetimes(run, values, {{1, 0, 1}});
  const bool granted = lifetimes.granted[0] != 0;
  CHECK((lifetimes.buffer_of[0] == lifetimes.buffer_of[1]) == granted);
  if (granted) CHECK(lifetimes.offset_in_buffer[0] == lifetimes.offset_in_buffer[1]);
  return granted;
}

TEST_CASE("in-place is granted when no other step needs the input any more") {
  using Run = RunOrder&;
  using Values = std::vector<RunValue>&;
  CHECK(Granted([](Run, Values) {}));
  CHECK(Granted([](Run, Values v) { v[1].bytes = 4; }));
  CHECK(Granted([](Run, Values v) { v[1].kept = true; }));
  CHECK(Granted([](Run, Values v) { v[0].producer = -1; }));
  CHECK(Granted([](Run, Values v) { v[0].users = {0, 1}; }));
  CHECK_FALSE(Granted([](Run, Values v) { v[1].bytes = 9; }));
  CHECK_FALSE(Granted([](Run, Values v) { v[0].kept = true; }));
  CHECK_FALSE(Granted([](Run, Values v) { v[0].external = true; }));
  CHECK_FALSE(Granted([](Run, Values v) { v[1].external = true; }));
  CHECK_FALSE(Granted([](Run, Values v) { v[0].users = {1, 3}; }));  // 3 may run after 1
  CHECK_FALSE(Granted([](Run, Values v) { v[0].users = {1, 2}; }));
  CHECK_FALSE(Granted([](Run, Values v) { v[0].users = {1, 1}; }));  // read twice by the step
  // On one thread the stored order decides.
  CHECK_FALSE(Granted([](Run r, Values v) {
    r = Walk(r);
    v[0].users = {1, 3};
  }));
  CHECK(Granted([](Run r, Values v) {
    r = Walk(r);
    v[0].users = {0, 1};
  }));
  // A view that is read later keeps the bytes.
  CHECK_FALSE(Granted([](Run, Values v) {
    v.push_back(Value(4, 0, {2}));
    v[2].view_of = 0;
  }));
  CHECK(Granted([](Run, Values v) {
    v.push_back(Value(4, 0, {0}));
    v[2].view_of = 0;
  }));
}

TEST_CASE("in-place chains share one buffer; a second output does not get the same bytes") {
  const RunOrder run = Order(4, {{0, 1}, {1, 2}, {2, 3}});
  const std::vector<RunValue> values = {Value(8, 0, {1}), Value(8, 1, {2}), Value(8, 2, {3}),
                                        Value(8, 1, {2})};
  const MemoryLifetimes lifetimes =
      FindLifetimes(run, values, {{1, 0, 1}, {2, 1, 2}, {1, 0, 3}, {2, 3, 2}});
  CHECK(lifetimes.granted == std::vector<uint8_t>{1, 1, 0, 0});
  CHECK(lifetimes.buffer_of == std::vector<int>{0, 0, 0, 1});
}

// Streams of steps that each write over what the one before in the stream wrote, side by side.
struct Streams {
  RunOrder run;
  std::vector<RunValue> values;
  std::vector<InPlaceOption> in_place;

  Streams(int steps, int streams) {
    run.nodes = steps;
    for (int i = 0; i < steps; ++i) {
      RunValue value;
      value.bytes = 8;
      value.producer = i;
      if (i + streams < steps) {
        run.before.push_back(i);
        run.after.push_back(i + streams);
        value.users.push_back(i + streams);
      }
      values.push_back(value);
      if (i >= streams) in_place.push_back({i, i - streams, i});
    }
  }
};

TEST_CASE("streams keep one buffer each, however long they are") {
  for (const int streams : {1, 4})
    for (const int exact_nodes : {0, 4096}) {
      CAPTURE(streams);
      CAPTURE(exact_nodes);
      const Streams run(Rounds(1600), streams);
      const MemoryLifetimes lifetimes =
          FindLifetimes(run.run, run.values, run.in_place, {exact_nodes});
      CHECK(lifetimes.buffers.size() == static_cast<size_t>(streams));
      for (size_t i = 0; i < run.values.size(); ++i)
        REQUIRE(lifetimes.buffer_of[i] == static_cast<int>(i) % streams);
      std::vector<int64_t> addresses;
      for (const int buffer : lifetimes.buffer_of) addresses.push_back(64 * buffer);
      CHECK_NOTHROW(opkit::VerifyMemoryPlan(run.run, run.values, run.in_place, addresses, 256));
    }
}

// By the square of the length this would take minutes.
TEST_CASE("granting in-place along a stream takes time by its length") {
  for (const int streams : {1, 4})
    for (const bool walk : {false, true}) {
      CAPTURE(streams);
      CAPTURE(walk);
      Streams run(Rounds(200'000), streams);
      if (walk) run.run = Walk(run.run);
      const MemoryLifetimes lifetimes = FindLifetimes(run.run, run.values, run.in_place, {0});
      CHECK(lifetimes.buffers.size() == static_cast<size_t>(streams));
    }
}

TEST_CASE("grants may join two chains of grants") {
  // 0 -> 1 -> 2 -> 3 -> 4 -> 5, and 6 after 4.
  const RunOrder run = Order(7, {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {4, 6}});
  std::vector<RunValue> values;
  for (int i = 0; i < 5; ++i) values.push_back(Value(8, i, {i + 1}));
  values.push_back(Value(8, 5, {}));
  const auto granted = [&] {
    return FindLifetimes(run, values, {{4, 3, 4}, {1, 0, 1}, {2, 1, 2}, {3, 2, 3}, {5, 4, 5}})
        .granted;
  };
  CHECK(granted() == std::vector<uint8_t>{1, 1, 1, 1, 1});
  values[2].users = {3, 6};  // 3 must not write over what 6 may still read
  CHECK(granted() == std::vector<uint8_t>{1, 1, 1, 0, 1});
  values[2].users = {3};
  values[4].users = {5, 6};
  CHECK(granted() == std::vector<uint8_t>{1, 1, 1, 1, 0});
}

TEST_CASE("lifetimes are exact: buffers conflict if and only if some legal run shows it") {
  int conflicts = 0, others = 0;
  for (uint64_t seed = 0; seed < Rounds(100u); ++seed) {
    CAPTURE(seed);
    RandomGenerator random(seed);
    RandomRun run = MakeRun(random, seed % 2 == 0 ? RunKind::kAnyThreads : RunKind::kWalk);
    for (RunValue& value : run.values) value.view_of = -1;  // a view needs some of the bytes only
    run.in_place.clear();
    const MemoryLifetimes lifetimes = FindLifetimes(run.order, run.values);
    REQUIRE(lifetimes.exact);
    const size_t buffers = lifetimes.buffers.size();
    for (int attempt = 0; attempt < 8 && buffers > 1; ++attempt) {
      // Two buffers at the same place, all others apart.
      const size_t a = random() % buffers, b = random() % buffers;
      if (a == b || lifetimes.buffers[a].size == 0 || lifetimes.buffers[b].size == 0) continue;
      std::vector<int64_t> addresses;
      size_t in_a = 0, in_b = 0;
      for (size_t i = 0; i < run.values.size(); ++i) {
        const int buffer = lifetimes.buffer_of[i];
        if (buffer == static_cast<int>(a)) in_a = i;
        if (buffer == static_cast<int>(b)) in_b = i;
        addresses.push_back(lifetimes.offset_in_buffer[i] +
                            (buffer == static_cast<int>(b) ? static_cast<int64_t>(a) : buffer) *
                                64);
      }
      bool shown = false;
      for (int order = 0; order < 400 && !shown; ++order)
        shown = !Simulation(run, addresses, random).Run().empty();
      CAPTURE(in_a);
      CAPTURE(in_b);
      REQUIRE(Conflict(lifetimes, in_a, in_b) == shown);
      ++(shown ? conflicts : others);
    }
  }
  CHECK(conflicts > Rounds(75));
  CHECK(others > Rounds(75));
}

TEST_CASE("lifetimes off the longest path hold all conflicts there are") {
  int64_t exact_pairs = 0, path_pairs = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    RandomGenerator random(seed);
    const RandomRun run = MakeRun(random, RunKind::kAnyThreads);
    const MemoryLifetimes exact = FindLifetimes(run.order, run.values);
    const MemoryLifetimes path = FindLifetimes(run.order, run.values, {}, {0});
    CHECK(exact.exact);
    CHECK_FALSE(path.exact);
    for (size_t a = 0; a < run.values.size(); ++a)
      for (size_t b = 0; b < a; ++b) {
        if (exact.buffer_of[a] < 0 || exact.buffer_of[b] < 0 ||
            exact.buffer_of[a] == exact.buffer_of[b])
          continue;
        exact_pairs += Conflict(exact, a, b);
        path_pairs += Conflict(path, a, b);
        if (Conflict(exact, a, b)) REQUIRE(Conflict(path, a, b));
      }
  }
  CHECK(path_pairs < 2 * exact_pairs);  // and not too many more
}

TEST_CASE("an impossible run is refused, with the expected value") {
  const auto message = [](auto&& change) {
    RunOrder run = Order(3, {{0, 1}, {1, 2}});
    std::vector<RunValue> values = {Value(8, 0, {1}), Value(8, 1, {2})};
    std::vector<InPlaceOption> in_place = {{1, 0, 1}};
    change(run, values, in_place);
    return ErrorOf([&] { (void)FindLifetimes(run, values, in_place); }).message();
  };
  using Run = RunOrder&;
  using Values = std::vector<RunValue>&;
  using Options = std::vector<InPlaceOption>&;
  CHECK(message([](Run r, Values, Options) { r.nodes = -1; }) ==
        "expected 0 or more steps, found -1");
  CHECK(message([](Run r, Values, Options) { r.after.pop_back(); }) ==
        "expected both ends of every edge, found 2 in `before` and 1 in `after`");
  CHECK(message([](Run r, Values, Options) { r.before[1] = 2; }) ==
        "edge 1 goes from step 2 to step 2: expected 0 <= before < after < 3");
  CHECK(message([](Run r, Values, Options) { r.after[1] = 3; }) ==
        "edge 1 goes from step 1 to step 3: expected 0 <= before < after < 3");
  CHECK(message([](Run r, Values, Options) {
          r.stages = {0, 1};
        }) == "expected a stage for each of 3 steps, or none; found 2");
  CHECK(message([](Run r, Values, Options) {
          r.stages = {0, 2, 1};
        }) == "step 2 has stage 1, less than the step before it: expected ascending stages");
  CHECK(message([](Run r, Values, Options) {
          r.stages = {-1, 2, 3};
        }) == "step 0 has stage -1: expected 0 or more");
  CHECK(message([](Run r, Values, Options) { r.asynchronous = {1}; }) ==
        "expected `asynchronous` for each of 3 steps, or none; found 1");
  CHECK(message([](Run, Values v, Options) { v[1].bytes = -1; }) ==
        "value 1 has -1 bytes: expected 0 or more");
  CHECK(message([](Run, Values v, Options) { v[1].alignment = 48; }) ==
        "value 1 has alignment 48: expected a power of two");
  CHECK(message([](Run, Values v, Options) { v[1].producer = 3; }) ==
        "value 1 is made by step 3: expected one of the 3 steps, or -1 for a value that is there "
        "before the run");
  CHECK(message([](Run, Values v, Options) { v[1].users = {3}; }) ==
        "value 1 is read by step 3: expected one of the 3 steps");
  CHECK(message([](Run, Values v, Options) { v[1].users = {0}; }) ==
        "value 1 is read by step 0, which no edge orders after step 1, which makes it");
  CHECK(message([](Run r, Values v, Options) {
          r = Order(3, {{0, 1}});
          v[1].users = {2};
        }) == "value 1 is read by step 2, which no edge orders after step 1, which makes it");
  CHECK(message([](Run, Values v, Options) { v[1].view_of = 2; }) ==
        "value 1 is a view of value 2: expected one of the 2 values");
  CHECK(message([](Run, Values v, Options) { v[1].view_of = 1; }) == "value 1 is a view of itself");
  CHECK(message([](Run, Values v, Options) {
          v[1].view_of = 0;
          v[1].view_offset = 1;
        }) == "value 1 views 8 bytes from byte 1 of value 0, which has 8 bytes");
  CHECK(message([](Run, Values, Options o) { o[0].output = 2; }) ==
        "in-place option 0 is of values 0 and 2: expected two of the 2 values");
  CHECK(message([](Run, Values, Options o) { o[0].node = 2; }) ==
        "in-place option 0: expected step 2 to read value 0 and to make value 1");
}

TEST_CASE("a wide graph of many steps is planned for by its longest path") {
  // A spine of 20,000 steps, each with a side step that joins two steps later.
  const int spine = 20'000;
  RunOrder run;
  run.nodes = 2 * spine;
  std::vector<RunValue> values;
  for (int i = 0; i < spine; ++i) {
    const auto edge = [&](int before, int after) {
      if (after >= run.nodes) return;
      run.before.push_back(before);
      run.after.push_back(after);
    };
    edge(2 * i, 2 * i + 1);      // to the side step
    edge(2 * i, 2 * i + 2);      // along the spine
    edge(2 * i + 1, 2 * i + 6);  // the side step joins
    if (2 * i + 6 < run.nodes) values.push_back(Value(64, 2 * i + 1, {2 * i + 6}));
  }
  const MemoryLifetimes lifetimes = FindLifetimes(run, values);
  CHECK_FALSE(lifetimes.exact);
  CHECK(lifetimes.conflicts.empty());
  for (size_t i = 0; i + 10 < values.size(); ++i) {
    REQUIRE(Conflict(lifetimes, i, i + 1));
    REQUIRE_FALSE(Conflict(lifetimes, i, i + 4));
  }
}

}  // namespace
}  // namespace lifetimes_test
