// Latch: a count of things still to happen, which threads wait for through ThreadPool::Wait while
// they help with the pool's tasks. TaskGroup and the waits of the engine use it.
#ifndef OPKIT_ENGINE_POOL_LATCH_HPP_
#define OPKIT_ENGINE_POOL_LATCH_HPP_

#include <atomic>
#include <cstdint>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class ThreadPool;

namespace detail {

class Parker;

// A sleeping thread, in the list of threads whose latch falls into the same bucket.
struct LatchSleeper {
  const void* latch = nullptr;
  Parker* parker = nullptr;
  LatchSleeper* next = nullptr;
};

class Latch {
 public:
  explicit Latch(int64_t count = 0) : count_(count) {}
  Latch(Latch&&) = delete;

  // Adds `n`. Relaxed: no other data is read because of this number. A latch is raised either
  // before its waiters start, or by something that itself still counts.
  void Add(int64_t n = 1) { count_.fetch_add(n, std::memory_order_relaxed); }

  // Subtracts `n`. A waiter may destroy the latch before the last CountDown returns. Costs an
  // atomic subtraction, and about 20 ns more when the count reaches zero.
  void CountDown(int64_t n = 1) {
    // Release: everything before any CountDown is seen by a thread that acquires the zero (the
    // subtractions of others continue the release sequence).
    if (count_.fetch_sub(n, std::memory_order_release) == n) WakeSleepers(this);
  }

  bool done() const { return count_.load(std::memory_order_acquire) == 0; }

 private:
  friend ThreadPool;

  // Adds the thread to the sleepers; returns false if the count is zero already.
  bool Enlist(LatchSleeper& self) const;
  static void Delist(LatchSleeper& self);
  static void WakeSleepers(const void* latch);
  // Forgets all sleepers; called in a forked child, where their threads do not exist.
  static void ForgetSleepers();

  std::atomic<int64_t> count_;
};

}  // namespace detail
}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/engine/pool/impl/latch.ipp"
#endif

#endif  // OPKIT_ENGINE_POOL_LATCH_HPP_
