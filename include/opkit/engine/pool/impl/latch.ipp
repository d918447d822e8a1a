// How threads sleep until a Latch is at zero: in a table that is never destroyed, by the latch's
// address. The thread that brings a latch to zero needs only the address from then on. So a waiter
// that sees the zero may destroy the latch at once.
#ifndef OPKIT_ENGINE_POOL_IMPL_LATCH_IPP_
#define OPKIT_ENGINE_POOL_IMPL_LATCH_IPP_

#include "opkit/base/platform.hpp"
#include "opkit/engine/pool/latch.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The sleeping threads of all latches whose addresses have the same hash.
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

// No wake-up is lost: the sleeper enlists and looks at the count under the bucket's lock. If the
// last CountDown takes the lock later it finds the sleeper; if earlier, its subtraction happened
// before and the sleeper sees zero.
OPKIT_INLINE bool Latch::Enlist(LatchSleeper& self) const {
  LatchBucket& bucket = BucketOf(this);
  MutexLock lock(bucket.mutex);
  if (done()) return false;
  self.latch = this;
  self.next = bucket.first;
  bucket.first = &self;
  return true;
}

OPKIT_INLINE void Latch::Delist(LatchSleeper& self) {
  LatchBucket& bucket = BucketOf(self.latch);
  MutexLock lock(bucket.mutex);
  LatchSleeper** at = &bucket.first;
  while (*at && *at != &self) at = &(*at)->next;
  if (*at) *at = self.next;
}

OPKIT_INLINE void Latch::WakeSleepers(const void* latch) {
  LatchBucket& bucket = BucketOf(latch);
  MutexLock lock(bucket.mutex);
  for (LatchSleeper** at = &bucket.first; *at;) {
    LatchSleeper* const sleeper = *at;
    if (sleeper->latch != latch) {
      at = &sleeper->next;
      continue;
    }
    *at = sleeper->next;
    // `sleeper` is on the stack of its thread. It is not destroyed while this lock is held, because
    // the thread must take the lock in Delist before it returns.
    Parker::Wake(sleeper->parker->Set());
  }
}

OPKIT_INLINE void Latch::ForgetSleepers() {
  for (LatchBucket& bucket : g_latch_buckets) {
    bucket.mutex.ResetAfterFork();
    bucket.first = nullptr;
  }
}

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_POOL_IMPL_LATCH_IPP_
