// SpinLock: one word, for sections of a dozen instructions that are nearly never contended: the
// bookkeeping of one Var, the head of a free list.
#ifndef OPKIT_ENGINE_POOL_SPIN_LOCK_HPP_
#define OPKIT_ENGINE_POOL_SPIN_LOCK_HPP_

#include <atomic>

#include "opkit/base/platform.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Half the price of a mutex, because unlocking is a plain store: there is no sleeper to look for. A
// thread that finds it locked for long yields the CPU, since the holder may have lost its own.
class SpinLock {
 public:
  // Acquire, with the release in Unlock: the section sees the writes of earlier ones.
  void Lock() {
    if (locked_.exchange(1, std::memory_order_acquire) != 0) [[unlikely]]
      LockSlowly();
  }
  void Unlock() { locked_.store(0, std::memory_order_release); }
  // Unlocks it in a forked child, where the thread that held it may not exist.
  void ResetAfterFork() { locked_ = 0; }

 private:
  OPKIT_COLD void LockSlowly() {
    constexpr int kSpins = 64;
    for (;;) {
      for (int i = 0; i < kSpins; ++i) {
        CpuRelax();
        // Relaxed: only a hint of when to try.
        if (locked_.load(std::memory_order_relaxed) == 0 &&
            locked_.exchange(1, std::memory_order_acquire) == 0)
          return;
      }
      sched_yield();
    }
  }

  std::atomic<uint32_t> locked_{0};
};

using SpinLockGuard = LockGuard<SpinLock>;

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_POOL_SPIN_LOCK_HPP_
