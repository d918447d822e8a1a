#include "opkit/graph/memory/verify.hpp"
#include "support/sanitizers.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "opkit/graph/memory/lifetimes.hpp"
#include "opkit/graph/memory/plan_memory.hpp"
#include "random_run.hpp"
#include "support/error_of.hpp"

namespace verify_test { namespace {

using opkit::MemoryInterval;
using opkit::MemoryPlan;
using opkit::RandomGenerator;
using opkit::VerifyMemoryPlan;
using opkit::detail::RunOrder;
using opkit::detail::RunValue;

// The addresses of a run's values and the size of the arena.
struct Addresses {
  std::vector<int64_t> of;
  int64_t arena = 0;
};

Addresses PlanRun(const RandomRun& run) {
  const opkit::detail::MemoryLifetimes lifetimes =
      opkit::detail::FindLifetimes(run.order, run.values, run.in_place);
  const MemoryPlan plan =
      opkit::PlanMemory(lifetimes.buffers, lifetimes.conflicts, {.max_steps = 10'000});
  Addresses addresses;
  addresses.arena = plan.arena_bytes;
  for (size_t i = 0; i < run.values.size(); ++i) {
    const int buffer = lifetimes.buffer_of[i];
    addresses.of.push_back(buffer < 0 ? -1
                                      : plan.offsets[static_cast<size_t>(buffer)] +
                                            lifetimes.offset_in_buffer[i]);
  }
  return addresses;
}

std::string Verdict(const RandomRun& run, const Addresses& addresses) {
  try {
    VerifyMemoryPlan(run.order, run.values, run.in_place, addresses.of, addresses.arena);
    return "";
  } catch (const opkit::Error& error) {
    return error.message();
  }
}

// Moves a value with all its views, or swaps two, or cuts the arena.
bool Spoil(const RandomRun& run, Addresses* addresses, RandomGenerator& random) {
  std::vector<size_t> roots;
  for (size_t i = 0; i < run.values.size(); ++i)
    if (run.values[i].view_of < 0 && !run.values[i].external && run.values[i].bytes > 0)
      roots.push_back(i);
  if (roots.empty()) return false;
  const size_t moved = roots[random() % roots.size()];
  const size_t other = roots[random() % roots.size()];
  if (random() % 2 == 0)
    addresses->of[moved] = addresses->of[other];
  else
    addresses->of[moved] += static_cast<int64_t>(random() % 17) - 8;
  for (size_t i = 0; i < run.values.size(); ++i)
    if (run.values[i].view_of >= 0)
      addresses->of[i] =
          addresses->of[static_cast<size_t>(run.values[i].view_of)] + run.values[i].view_offset;
  return true;
}

// Wrong by itself, or by what some legal order of the run did.
bool IsWrong(const RandomRun& run, const Addresses& addresses, RandomGenerator& random) {
  for (size_t i = 0; i < run.values.size(); ++i) {
    const RunValue& value = run.values[i];
    if (addresses.of[i] < 0) {
      size_t root = i;
      while (run.values[root].view_of >= 0) root = static_cast<size_t>(run.values[root].view_of);
      if (!run.values[root].external) return true;
      continue;
    }
    if (value.view_of < 0 && !value.external &&
        (addresses.of[i] % value.alignment != 0 || addresses.of[i] + value.bytes > addresses.arena))
      return true;
  }
  for (int order = 0; order < 100; ++order)
    if (!Simulation(run, addresses.of, random).Run().empty()) return true;
  return false;
}

TEST_CASE("a thousand spoiled plans are refused and their originals accepted") {
  int spoiled = 0;
  for (uint64_t seed = 0; spoiled < Rounds(1000); ++seed) {
    CAPTURE(seed);
    RandomGenerator random(seed);
    const RandomRun run = MakeRun(random, static_cast<RunKind>(seed % 3));
    const Addresses addresses = PlanRun(run);
    REQUIRE(Verdict(run, addresses) == "");
    for (int order = 0; order < 10; ++order)
      REQUIRE(Simulation(run, addresses.of, random).Run() == "");
    for (int attempt = 0; attempt < 4; ++attempt) {
      Addresses wrong = addresses;
      if (!Spoil(run, &wrong, random) || !IsWrong(run, wrong, random)) continue;
      ++spoiled;
      REQUIRE(Verdict(run, wrong) != "");
    }
  }
}

// 0 -> 1 -> 2 with 3 after 0 only; v0: 0 to 1, v1: 1 to 2, v2: made by 3.
struct Example {
  RandomRun run;
  Addresses addresses{{0, 64, 128}, 192};

  Example() {
    run.order.nodes = 4;
    run.order.before = {0, 1, 0};
    run.order.after = {1, 2, 3};
    run.values.resize(3);
    const int producers[] = {0, 1, 3};
    for (size_t i = 0; i < 3; ++i) {
      run.values[i].bytes = 64;
      run.values[i].producer = producers[i];
    }
    run.values[0].users = {1};
    run.values[1].users = {2};
  }
  std::string Message(const std::vector<std::string>& names = {}) const {
    return ErrorOf([&] {
             VerifyMemoryPlan(run.order, run.values, run.in_place, addresses.of, addresses.arena,
                              names);
           })
        .message();
  }
};
const char* const kSound = "no Error was thrown";

TEST_CASE("the verdict names the values, their bytes and the steps that can meet") {
  Example example;
  CHECK(example.Message() == kSound);
  example.run.values[2].alignment = 32;
  example.addresses.of = {0, 64, 32};
  CHECK(example.Message({"x", "y", "z"}) ==
        "the memory plan is wrong: value 0 'x' (bytes 0 to 64) and value 2 'z' (bytes 32 to 96) "
        "share bytes and can be live together: step 1, which touches the first, need not have "
        "completed when step 3, which touches the second, starts");
  example.run.order.before.push_back(2);  // now 3 comes last
  example.run.order.after.push_back(3);
  CHECK(example.Message() == kSound);
  example.run.values[0].kept = true;
  CHECK(Contains(example.Message(), "the first is kept to the end of the run"));
  example.run.values[0].kept = false;
  example.run.values[2].producer = -1;
  example.run.values[2].users = {3};
  CHECK(Contains(example.Message(), "the second is there from the start of the run"));
}

TEST_CASE("places outside the arena or off their alignment are named") {
  Example example;
  example.addresses.arena = 191;
  CHECK(example.Message({"", "", "z"}) ==
        "the memory plan is wrong: value 2 'z' of 64 bytes at 128 is not inside the arena of 191 "
        "bytes");
  example.addresses.arena = INT64_MAX;
  example.addresses.of[2] = INT64_MAX - 1;
  CHECK(Contains(example.Message(), "is not inside the arena"));
  example.addresses.of[2] = -64;
  CHECK(Contains(example.Message(), "is not inside the arena"));
  example.addresses.of[2] = 160;
  CHECK(example.Message() ==
        "the memory plan is wrong: value 2 (bytes 160 to 224) is not aligned to 64 bytes");
  example.addresses.of.pop_back();
  CHECK(example.Message() ==
        "the memory plan is wrong: expected an address for each of 3 values, found 2");
}

TEST_CASE("a view lies where it views, and keeps the bytes alive") {
  Example example;
  RunValue view;
  view.bytes = 16;
  view.view_of = 0;
  view.view_offset = 32;
  view.producer = 1;
  example.run.values.push_back(view);
  example.addresses.of.push_back(32);
  CHECK(example.Message() == kSound);
  example.addresses.of[3] = 33;
  CHECK(example.Message() ==
        "the memory plan is wrong: value 3 (bytes 33 to 49) is not where it views value 0 (bytes 0 "
        "to 64), at byte 32 of it");
  example.addresses.of[3] = 32;
  example.run.order.before.push_back(1);
  example.run.order.after.push_back(3);
  example.addresses.of[2] = 0;  // after 1, where value 0 is last read
  CHECK(example.Message() == kSound);
  example.run.values[3].users = {2};
  CHECK(Contains(example.Message(), "can be live together"));
}

TEST_CASE("a step writes over its input only by its kernel's permission") {
  Example example;
  example.addresses.of = {0, 0, 128};
  CHECK(Contains(example.Message(), "can be live together: step 1"));
  example.run.in_place = {{1, 0, 1}};
  CHECK(example.Message() == kSound);
  example.run.values[0].users = {1, 1};
  CHECK(Contains(example.Message(), "can be live together"));
  example.run.values[0].users = {1, 3};
  CHECK(Contains(example.Message(), "can be live together"));
  example.run.values[0].users = {1};
  example.run.values[1].alignment = 16;
  example.addresses.of[1] = 16;  // not where the input is
  CHECK(Contains(example.Message(), "can be live together"));
}

TEST_CASE("stages order steps; an asynchronous step has not completed when it returns") {
  Example example;
  example.addresses.of = {0, 64, 0};  // step 1 reads value 0, step 3 writes value 2
  CHECK(Contains(example.Message(), "can be live together"));
  example.run.order.stages = {0, 1, 1, 1};
  CHECK(Contains(example.Message(), "can be live together"));
  example.run.order.stages = {0, 1, 1, 2};
  CHECK(example.Message() == kSound);
  example.run.order.asynchronous = {0, 1, 0, 0};
  CHECK(example.Message() == kSound);  // 2 waits for 1 and returns before 3 starts
  example.run.order.stages = {0, 1, 2, 2};
  CHECK(Contains(example.Message(), "can be live together"));
  example.run.order.stages = {0, 1, 2, 3};
  CHECK(example.Message() == kSound);
}

TEST_CASE("plans of intervals and of listed conflicts are verified pair by pair") {
  const std::vector<MemoryInterval> buffers = {{0, 2, 8, 8}, {1, 3, 8, 8}, {2, 4, 8, 8}};
  MemoryPlan plan = opkit::PlanMemory(buffers);
  CHECK_NOTHROW(VerifyMemoryPlan(buffers, plan));
  const auto message = [&](const opkit::MemoryConflicts& conflicts) {
    return ErrorOf([&] { VerifyMemoryPlan(buffers, conflicts, plan); }).message();
  };
  CHECK(message({{0, 1, 1, 2}, {2, 0}}) ==
        "the memory plan is wrong: buffer 0 (bytes 0 to 8) and buffer 2 (bytes 0 to 8) share bytes "
        "and can be live together: they are listed as a conflict");
  plan.offsets = {0, 0, 8};
  CHECK(message({}) ==
        "the memory plan is wrong: buffer 0 (bytes 0 to 8) and buffer 1 (bytes 0 to 8) share bytes "
        "and can be live together: their spans overlap");
  plan.offsets = {0, 12, 0};
  CHECK(Contains(message({}), "buffer 1 of 8 bytes at 12 is not inside the arena of 16 bytes"));
  plan.arena_bytes = 20;
  CHECK(Contains(message({}), "buffer 1 (bytes 12 to 20) is not aligned to 8 bytes"));
  plan.offsets.pop_back();
  CHECK(Contains(message({}), "expected an offset for each of 3 buffers, found 2"));
}

}  // namespace
}  // namespace verify_test
