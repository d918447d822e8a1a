#include "opkit/engine/parallel_for.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/watchdog.hpp"

namespace parallel_for_test { namespace {

using opkit::kAutoGrain;
using opkit::ParallelFor;
using opkit::ParallelForRange;
using opkit::PoolScope;
using opkit::ThreadPool;

// Lasts longer than what ParallelFor takes for worth sharing, without a clock.
void Work(int64_t rounds) {
  std::atomic<int64_t> i{0};
  while (i.load(std::memory_order_relaxed) < rounds) i.fetch_add(1, std::memory_order_relaxed);
}

TEST_CASE("every index is visited exactly once, for every size, grain and number of threads") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    ThreadPool pool(threads);
    PoolScope scope(pool);
    for (int64_t n : {-1, 0, 1, 2, 3, 7, 8, 9, 100, 1000, 65'537}) {
      for (int64_t grain : {int64_t{-5}, kAutoGrain, int64_t{1}, int64_t{2}, int64_t{3},
                            int64_t{64}, int64_t{1000}, n, std::numeric_limits<int64_t>::max()}) {
        CAPTURE(threads);
        CAPTURE(n);
        CAPTURE(grain);
        const size_t size = static_cast<size_t>((std::max)(n, int64_t{0}));
        std::vector<uint8_t> visits(size, 0);  // not atomic: TSan sees two visits
        ParallelFor(
            n, [&](int64_t i) { ++visits[static_cast<size_t>(i)]; }, grain);
        ParallelForRange(n, grain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
        });
        CHECK(visits == std::vector<uint8_t>(size, 2));
      }
    }
  }
}

TEST_CASE("the measured grain visits every index once, for cheap, costly and uneven bodies") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    ThreadPool pool(threads);
    PoolScope scope(pool);
    for (int64_t cost : {0, 100, 10'000}) {
      for (int64_t n : {1, 2, 5, 6, 64, 2000}) {
        CAPTURE(threads);
        CAPTURE(cost);
        CAPTURE(n);
        std::vector<uint8_t> visits(static_cast<size_t>(n), 0);
        ParallelFor(n, [&](int64_t i) {
          Work(i % 3 == 0 ? cost : 0);
          ++visits[static_cast<size_t>(i)];
        });
        CHECK(visits == std::vector<uint8_t>(static_cast<size_t>(n), 1));
      }
    }
  }
}

TEST_CASE("with a grain the ranges are its multiples, for every number of threads") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    CAPTURE(threads);
    ThreadPool pool(threads);
    PoolScope scope(pool);
    std::mutex mutex;
    std::vector<std::pair<int64_t, int64_t>> ranges;
    ParallelForRange(10, 4, [&](int64_t begin, int64_t end) {
      std::lock_guard lock(mutex);
      ranges.emplace_back(begin, end);
    });
    std::sort(ranges.begin(), ranges.end());
    CHECK(ranges == std::vector<std::pair<int64_t, int64_t>>{{0, 4}, {4, 8}, {8, 10}});
  }
}

TEST_CASE("indices near the largest int64 do not overflow") {
  ThreadPool pool(2);
  PoolScope scope(pool);
  const int64_t n = std::numeric_limits<int64_t>::max();
  const int64_t grain = n / 2 - 1;
  std::mutex mutex;
  std::vector<std::pair<int64_t, int64_t>> ranges;
  ParallelForRange(n, grain, [&](int64_t begin, int64_t end) {
    std::lock_guard lock(mutex);
    ranges.emplace_back(begin, end);
  });
  std::sort(ranges.begin(), ranges.end());
  CHECK(ranges ==
        std::vector<std::pair<int64_t, int64_t>>{{0, grain}, {grain, 2 * grain}, {2 * grain, n}});
}

TEST_CASE("small loops, and all loops of a pool of one, run on the calling thread alone") {
  ThreadPool one(1);
  ThreadPool many(8);
  const std::thread::id self = std::this_thread::get_id();
  bool elsewhere = false;  // not atomic: no other thread touches it
  auto body = [&](int64_t) { elsewhere |= std::this_thread::get_id() != self; };
  {
    PoolScope scope(one);
    ParallelFor(1000, body, 1);
    ParallelFor(1000, body);
  }
  PoolScope scope(many);
  ParallelFor(100, body, 100);
  ParallelFor(1, body, 1);
  CHECK_FALSE(elsewhere);
}

TEST_CASE("workers take part: two chunks that wait for each other both run") {
  Watchdog watchdog;
  for (int threads : {2, 8}) {
    ThreadPool pool(threads);
    PoolScope scope(pool);
    std::atomic<int> arrived{0};
    ParallelFor(
        threads,
        [&](int64_t) {
          ++arrived;
          while (arrived < threads) std::this_thread::yield();
        },
        1);
    CHECK(arrived == threads);
  }
}

TEST_CASE("workers take part in a measured loop whose body is costly") {
  Watchdog watchdog;
  ThreadPool pool(2);
  PoolScope scope(pool);
  std::atomic<bool> helped{false};
  const std::thread::id self = std::this_thread::get_id();
  while (!helped) {  // the caller may be faster than a worker once, not for ever
    ParallelFor(64, [&](int64_t) {
      Work(10'000);
      if (std::this_thread::get_id() != self) helped = true;
    });
  }
  CHECK(helped);
}

TEST_CASE("loops nest three deep, at every level, with any grain") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    for (int64_t grain : {kAutoGrain, int64_t{1}, int64_t{5}}) {
      CAPTURE(threads);
      CAPTURE(grain);
      ThreadPool pool(threads);
      PoolScope scope(pool);
      std::vector<uint8_t> visits(20 * 20 * 20, 0);
      ParallelFor(
          20,
          [&](int64_t i) {
            ParallelFor(
                20,
                [&](int64_t j) {
                  ParallelFor(
                      20, [&](int64_t k) { ++visits[static_cast<size_t>((i * 20 + j) * 20 + k)]; },
                      grain);
                },
                grain);
          },
          grain);
      CHECK(visits == std::vector<uint8_t>(visits.size(), 1));
    }
  }
}

TEST_CASE("loops nest inside submitted tasks, more tasks than threads") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    CAPTURE(threads);
    ThreadPool pool(threads);
    opkit::detail::Latch latch(30);
    std::atomic<int> count{0};
    std::atomic<int> strangers{0};
    for (int i = 0; i < 30; ++i) {
      pool.Submit([&] {
        ParallelFor(
            10,
            [&](int64_t) {
              strangers += &ThreadPool::Current() != &pool;
              ParallelFor(
                  10, [&](int64_t) { ++count; }, 1);
            },
            1);
        latch.CountDown();
      });
    }
    pool.Wait(latch);
    CHECK(count == 3000);
    CHECK(strangers == 0);
  }
}

TEST_CASE("the first exception is rethrown in the caller, and every body has ended by then") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    for (int64_t failing : {0, 1, 500, 999}) {
      for (int64_t grain : {kAutoGrain, int64_t{1}, int64_t{10}, int64_t{1000}}) {
        CAPTURE(threads);
        CAPTURE(failing);
        CAPTURE(grain);
        ThreadPool pool(threads);
        PoolScope scope(pool);
        std::atomic<int> inside{0};
        auto body = [&](int64_t i) {
          ++inside;
          Work(100);
          --inside;
          if (i == failing) throw std::runtime_error("index " + std::to_string(i));
        };
        CHECK_THROWS_WITH_AS(ParallelFor(1000, body, grain),
                             ("index " + std::to_string(failing)).c_str(), std::runtime_error);
        CHECK(inside == 0);
      }
    }
  }
}

TEST_CASE("after an exception the chunks not yet begun are skipped") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    CAPTURE(threads);
    ThreadPool pool(threads);
    PoolScope scope(pool);
    std::atomic<int64_t> begun{0};
    std::atomic<bool> thrown{false};
    CHECK_THROWS_AS(ParallelFor(
                        1'000'000,
                        [&](int64_t) {
                          ++begun;
                          if (!thrown.exchange(true)) throw 1;
                          Work(100);
                        },
                        1),
                    int);
    CHECK(begun < 1'000'000);
  }
}

TEST_CASE("when every chunk throws, one exception arrives") {
  Watchdog watchdog;
  ThreadPool pool(8);
  PoolScope scope(pool);
  for (int round = 0; round < 200; ++round) {
    CHECK_THROWS_AS(ParallelFor(
                        100, [](int64_t i) { throw i; }, 1),
                    int64_t);
  }
}

TEST_CASE("an exception passes through nested loops") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    ThreadPool pool(threads);
    PoolScope scope(pool);
    CHECK_THROWS_WITH_AS(ParallelFor(
                             8,
                             [](int64_t i) {
                               ParallelFor(
                                   8,
                                   [i](int64_t j) {
                                     if (i == 3 && j == 5) throw std::runtime_error("inner");
                                   },
                                   1);
                             },
                             1),
                         "inner", std::runtime_error);
  }
}

TEST_CASE("the body runs under the caller's invocation on every thread") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    CAPTURE(threads);
    ThreadPool pool(threads);
    PoolScope scope(pool);
    opkit::InvocationScope invocation(opkit::Invocation::Kind::kOperator);
    const opkit::Invocation token = opkit::CurrentInvocation();
    std::vector<opkit::Invocation> seen(64);
    std::atomic<int> arrived{0};
    ParallelFor(
        64,
        [&](int64_t i) {
          ++arrived;
          while (i < threads && arrived < threads) std::this_thread::yield();  // all threads join
          seen[static_cast<size_t>(i)] = opkit::CurrentInvocation();
          opkit::InvocationScope child(opkit::Invocation::Kind::kUserCode);
          ParallelFor(
              4, [&](int64_t) {}, 1);
        },
        1);
    CHECK(seen == std::vector<opkit::Invocation>(64, token));
    CHECK(opkit::CurrentInvocation() == token);
  }
}

TEST_CASE("the caller runs nothing but its loop, so it may hold a lock that tasks take") {
  Watchdog watchdog;
  ThreadPool pool(2);
  PoolScope scope(pool);
  std::mutex mutex;
  opkit::detail::Latch latch(1000);
  std::atomic<int> count{0};
  {
    std::lock_guard lock(mutex);
    for (int i = 0; i < 1000; ++i) {
      pool.Submit([&] {
        { std::lock_guard inside(mutex); }
        latch.CountDown();
      });
    }
    for (int i = 0; i < 100; ++i)
      ParallelFor(
          100, [&](int64_t) { ++count; }, 1);
  }
  pool.Wait(latch);
  CHECK(count == 10'000);
}

TEST_CASE("a body that changes its own state by reference keeps it") {
  ThreadPool pool(1);
  PoolScope scope(pool);
  struct Body {
    int64_t sum = 0;
    void operator()(int64_t i) { sum += i; }
  } body;
  ParallelFor(10, body);
  ParallelFor(10, body, 3);
  CHECK(body.sum == 90);
}

TEST_CASE("loops from many threads at once share the pool") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    CAPTURE(threads);
    ThreadPool pool(threads);
    std::atomic<int64_t> sum{0};
    std::vector<std::thread> callers;
    for (int t = 0; t < 4; ++t) {
      callers.emplace_back([&] {
        PoolScope scope(pool);
        for (int round = 0; round < 100; ++round) {
          ParallelFor(
              100, [&](int64_t i) { sum += i; }, 1 + round % 10);
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    CHECK(sum == 4 * 100 * 4950);
  }
}

// Each chunk waits for the others, so each loop needs every worker, and a lost wake-up hangs. With
// more threads than CPUs no worker spins before it sleeps: every loop wakes sleepers.
TEST_CASE("thousands of loops, each of which needs every thread, lose no wake-up") {
  Watchdog watchdog;
  for (int threads : {2, 3, 8}) {
    ThreadPool pool(threads);
    PoolScope scope(pool);
    const int rounds = threads == 2 ? 3'000 : 300;
    int64_t sum = 0;
    for (int round = 0; round < rounds; ++round) {
      std::atomic<int64_t> part{0};
      std::atomic<int> arrived{0};
      ParallelFor(
          threads,
          [&](int64_t i) {
            part += i;
            ++arrived;
            while (arrived < threads) std::this_thread::yield();
          },
          1);
      sum += part;
    }
    CHECK(sum == int64_t{rounds} * threads * (threads - 1) / 2);
  }
}

}  // namespace
}  // namespace parallel_for_test
