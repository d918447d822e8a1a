#include "opkit/engine/dependency/ready_queue.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "support/watchdog.hpp"

namespace ready_queue_test { namespace {

using opkit::detail::EngineOp;
using opkit::detail::ReadyQueue;

// Operations numbered in the order of their pushes.
struct Operations {
  explicit Operations(const std::vector<int>& priorities)
      : count(priorities.size()), ops(new EngineOp[priorities.size()]) {
    for (size_t i = 0; i < count; ++i) {
      ops[i].priority = priorities[i];
      ops[i].sequence = i + 1;
    }
  }
  size_t count;
  std::unique_ptr<EngineOp[]> ops;
};
std::vector<uint64_t> TakeAll(ReadyQueue& queue) {
  std::vector<uint64_t> sequences;
  while (EngineOp* op = queue.Take()) sequences.push_back(op->sequence);
  return sequences;
}

TEST_CASE("the highest priority comes first, and equal ones in the order of arrival") {
  ReadyQueue queue;
  CHECK(queue.empty());
  CHECK(queue.Take() == nullptr);
  Operations operations({0, -1, 3, 0, 7, 3, -1, 0});
  for (size_t i = 0; i < operations.count; ++i) queue.Push(&operations.ops[i]);
  CHECK_FALSE(queue.empty());
  CHECK(TakeAll(queue) == std::vector<uint64_t>{5, 3, 6, 1, 4, 8, 2, 7});
  CHECK(queue.empty());
}

TEST_CASE("any mixture comes out as if it had been sorted") {
  for (unsigned seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    std::vector<int> priorities;
    for (int i = 0; i < 100; ++i) priorities.push_back(static_cast<int>(random() % 7) - 3);
    Operations operations(priorities);
    ReadyQueue queue;
    std::vector<uint64_t> expected;
    for (size_t i = 0; i < operations.count; ++i) {
      queue.Push(&operations.ops[i]);
      expected.push_back(i + 1);
    }
    std::stable_sort(expected.begin(), expected.end(),
                     [&](uint64_t a, uint64_t b) { return priorities[a - 1] > priorities[b - 1]; });
    REQUIRE(TakeAll(queue) == expected);
  }
}

TEST_CASE("an operation knows whether an operation of higher priority waits") {
  ReadyQueue queue;
  CHECK_FALSE(queue.HasBetterThan(-5));
  Operations operations({0, 2, -1});
  queue.Push(&operations.ops[0]);
  CHECK(queue.HasBetterThan(-1));
  CHECK_FALSE(queue.HasBetterThan(0));
  queue.Push(&operations.ops[1]);
  CHECK(queue.HasBetterThan(1));
  CHECK_FALSE(queue.HasBetterThan(2));
  CHECK(TakeAll(queue).size() == 2);
  queue.Push(&operations.ops[2]);
  CHECK_FALSE(queue.HasBetterThan(-1));
  CHECK(queue.HasBetterThan(-2));
}

TEST_CASE("many threads push and take: each operation comes out once") {
  Watchdog watchdog;
  constexpr size_t kThreads = 4, kEach = 500;
  std::vector<int> priorities;
  for (size_t i = 0; i < kThreads * kEach; ++i)
    priorities.push_back(i % 5 == 0 ? static_cast<int>(i % 3) - 1 : 0);
  Operations operations(priorities);
  ReadyQueue queue;
  std::vector<std::atomic<int>> taken(operations.count);
  std::atomic<size_t> left{operations.count};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < kEach; ++i) {
        queue.Push(&operations.ops[t * kEach + i]);
        if (EngineOp* op = queue.Take()) {
          ++taken[op->sequence - 1];
          --left;
        }
      }
      while (left > 0)
        if (EngineOp* op = queue.Take()) {
          ++taken[op->sequence - 1];
          --left;
        }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::atomic<int>& times : taken) REQUIRE(times == 1);
  CHECK(queue.empty());
}

}  // namespace
}  // namespace ready_queue_test
