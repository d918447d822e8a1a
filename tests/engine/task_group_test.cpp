#include "opkit/engine/task_group.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "opkit/engine/parallel_for.hpp"
#include "support/watchdog.hpp"

namespace task_group_test { namespace {

using opkit::PoolScope;
using opkit::TaskGroup;
using opkit::ThreadPool;

int Fibonacci(int n) {
  if (n < 2) return n;
  int left = 0;
  TaskGroup group;
  group.Run([&] { left = Fibonacci(n - 1); });
  const int right = Fibonacci(n - 2);
  group.Wait();
  return left + right;
}

TEST_CASE("groups nest to any depth, waiting threads taking part") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    CAPTURE(threads);
    ThreadPool pool(threads);
    PoolScope scope(pool);
    CHECK(Fibonacci(15) == 610);
    int result = 0;
    TaskGroup group;
    group.Run([&] { result = Fibonacci(15); });
    group.Wait();
    CHECK(result == 610);
  }
}

TEST_CASE(
    "Wait rethrows the first exception once, after all tasks have run; the group is reusable") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    for (int failing : {0, 50, 99}) {
      CAPTURE(threads);
      CAPTURE(failing);
      ThreadPool pool(threads);
      TaskGroup group(pool);
      std::atomic<int> ran{0};
      for (int i = 0; i < 100; ++i) {
        group.Run([&ran, i, failing] {
          ++ran;
          if (i == failing) throw std::runtime_error("task " + std::to_string(i));
        });
      }
      CHECK_THROWS_WITH_AS(group.Wait(), ("task " + std::to_string(failing)).c_str(),
                           std::runtime_error);
      CHECK(ran == 100);
      CHECK_NOTHROW(group.Wait());
      group.Run([&] { ++ran; });
      CHECK_NOTHROW(group.Wait());
      CHECK(ran == 101);
    }
  }
}

TEST_CASE("a group's destructor waits and drops the exception") {
  Watchdog watchdog;
  ThreadPool pool(2);
  int written = 0;
  {
    TaskGroup group(pool);
    group.Run([&] {
      written = 1;
      throw 7;
    });
  }
  CHECK(written == 1);
}

TEST_CASE("tasks may add tasks to their own group, and loops may run in them") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    CAPTURE(threads);
    ThreadPool pool(threads);
    PoolScope scope(pool);
    TaskGroup group;
    std::atomic<int> count{0};
    for (int i = 0; i < 20; ++i) {
      group.Run([&] {
        opkit::ParallelFor(
            100, [&](int64_t) { ++count; }, 1);
        group.Run([&] {
          opkit::ParallelFor(
              100, [&](int64_t) { ++count; }, 7);
        });
      });
    }
    group.Wait();
    CHECK(count == 4000);
  }
}

TEST_CASE("a group can be filled from many threads") {
  Watchdog watchdog;
  ThreadPool pool(2);
  TaskGroup group(pool);
  std::atomic<int> count{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) group.Run([&] { ++count; });
    });
  }
  for (std::thread& thread : threads) thread.join();
  group.Wait();
  CHECK(count == 4000);
}

}  // namespace
}  // namespace task_group_test
