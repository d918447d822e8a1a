// Latch: a count of things still to happen, which threads wait for through ThreadPool::Wait while
// they help with the pool's tasks. TaskGroup and the Var engine's waits are made of it.
#ifndef OPKIT_ENGINE_POOL_LATCH_HPP_
#define OPKIT_ENGINE_POOL_LATCH_HPP_

#include <atomic>
#include <cstdint>

#include "opkit/base/platform.hpp"

namespace opkit::inline OPKIT_ABI {

namespace detail {

// Sleeping threads by the address of the latch they wait for, in a table that is never destroyed:
// whoever brings a latch to zero needs only its address from then on, so that a waiter which sees
// the zero may destroy the latch at once.
struct LatchSleeper {
  const void* latch = nullptr;
  Parker* parker = nullptr;
  LatchSleeper* next = nullptr;
};

struct alignas(kCacheLine) LatchBucket {
  Mutex mutex;
  LatchSleeper* first = nullptr;
};

inline constexpr int kLatchBucketBits = 6;
inline constinit LatchBucket g_latch_buckets[1 << kLatchBucketBits];

inline LatchBucket& BucketOf(const void* latch) {
  const uint64_t hash = reinterpret_cast<uintptr_t>(latch) * uint64_t{0x9E3779B97F4A7C15};
  return g_latch_buckets[hash >> (64 - kLatchBucketBits)];
}

}  // namespace detail

class Latch {
 public:
  explicit Latch(int64_t count = 0) : count_(count) {}
  Latch(const Latch&) = delete;
  Latch& operator=(const Latch&) = delete;

  // Relaxed: it publishes nothing, and a latch is raised either before its waiters start or by
  // something that itself still counts.
  void Add(int64_t n = 1) { count_.fetch_add(n, std::memory_order_relaxed); }

  // The latch may be destroyed by a waiter before the last CountDown returns. Costs an atomic
  // subtraction, and about 20 ns more when it reaches zero.
  void CountDown(int64_t n = 1) {
    // Release: everything before any CountDown is seen by a thread that acquires the zero (the
    // subtractions of others continue the release sequence).
    if (count_.fetch_sub(n, std::memory_order_release) == n) WakeSleepers(this);
  }

  bool done() const { return count_.load(std::memory_order_acquire) == 0; }

 private:
  friend class ThreadPool;

  // No wake-up is lost: the sleeper enlists and looks at the count under the bucket's lock. If the
  // last CountDown takes the lock later it finds the sleeper; if earlier, its subtraction happened
  // before and the sleeper sees zero.
  bool Enlist(detail::LatchSleeper& self) const {
    detail::LatchBucket& bucket = detail::BucketOf(this);
    detail::MutexLock lock(bucket.mutex);
    if (done()) return false;
    self.latch = this;
    self.next = bucket.first;
    bucket.first = &self;
    return true;
  }

  static void Delist(detail::LatchSleeper& self) {
    detail::LatchBucket& bucket = detail::BucketOf(self.latch);
    detail::MutexLock lock(bucket.mutex);
    for (detail::LatchSleeper** at = &bucket.first; *at != nullptr; at = &(*at)->next) {
      if (*at != &self) continue;
      *at = self.next;
      return;
    }
  }

  static void WakeSleepers(const void* latch) {
    detail::LatchBucket& bucket = detail::BucketOf(latch);
    detail::MutexLock lock(bucket.mutex);
    for (detail::LatchSleeper** at = &bucket.first; *at != nullptr;) {
      if ((*at)->latch != latch) {
        at = &(*at)->next;
        continue;
      }
      detail::LatchSleeper* sleeper = *at;
      *at = sleeper->next;
      // The sleeper delists itself under this lock, so it stays until the lock is let go.
      detail::Parker::Wake(sleeper->parker->Set());
    }
  }

  std::atomic<int64_t> count_;
};

}  // namespace opkit

#endif  // OPKIT_ENGINE_POOL_LATCH_HPP_
