#include "opkit/engine/pool/spin_lock.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "support/watchdog.hpp"

namespace spin_lock_test { namespace {

using opkit::detail::SpinLock;
using opkit::detail::SpinLockGuard;

TEST_CASE("one thread at a time is inside, and sees the writes of earlier ones") {
  Watchdog watchdog;
  SpinLock lock;
  int64_t count = 0;  // plain: ThreadSanitizer sees a second thread inside
  std::atomic<int> started{0}, inside{0}, met{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      ++started;
      while (started < 4) std::this_thread::yield();
      for (int i = 0; i < 5'000; ++i) {
        const SpinLockGuard guard(lock);
        met += inside++;
        if (i % 64 == 0) std::this_thread::yield();
        ++count;
        --inside;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(met == 0);
  CHECK(count == 20'000);
}

TEST_CASE("a lock whose holder is gone after a fork can be taken again") {
  Watchdog watchdog;
  SpinLock lock;
  lock.Lock();
  lock.ResetAfterFork();
  lock.Lock();
  lock.Unlock();
}

}  // namespace
}  // namespace spin_lock_test
