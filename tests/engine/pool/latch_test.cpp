#include "opkit/engine/pool/latch.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <thread>
#include <vector>

#include "opkit/engine/thread_pool.hpp"
#include "support/watchdog.hpp"

namespace latch_test { namespace {

using opkit::ThreadPool;
using opkit::detail::Latch;

TEST_CASE("a latch is done at zero, and can be raised again") {
  Latch latch(2);
  CHECK_FALSE(latch.done());
  latch.CountDown();
  CHECK_FALSE(latch.done());
  latch.CountDown();
  CHECK(latch.done());
  latch.Add(3);
  CHECK_FALSE(latch.done());
  latch.CountDown(3);
  CHECK(latch.done());
  CHECK(Latch().done());
}

TEST_CASE("any thread can bring a latch to zero, and several can wait for it") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 200; ++round) {
      Latch latch(1);
      int written = 0;
      std::vector<int> seen(3, -1);
      std::vector<std::thread> waiters;
      for (int& value : seen) {
        waiters.emplace_back([&] {
          pool.Wait(latch);
          value = written;
        });
      }
      written = round;
      latch.CountDown();
      for (std::thread& waiter : waiters) waiter.join();
      CHECK(seen == std::vector<int>(3, round));
    }
  }
}

// The waiter frees the latch as soon as it is at zero; ASan sees if CountDown still touches it.
TEST_CASE("a waiter may destroy the latch while the last CountDown is still running") {
  Watchdog watchdog;
  ThreadPool pool(8);
  for (int round = 0; round < 5000; ++round) {
    auto latch = std::make_unique<Latch>(2);
    for (int i = 0; i < 2; ++i) pool.Submit([raw = latch.get()] { raw->CountDown(); });
    pool.Wait(*latch);
    latch.reset();
  }
}

}  // namespace
}  // namespace latch_test
