// LoopBoard: where running ParallelFor loops are posted for the pool's idle threads to join. A loop
// lives on its caller's stack; the caller takes it down and waits only for threads that are inside
// and make progress on their own. That is why nested loops cannot deadlock: no thread ever waits
// for work that is still queued.
#ifndef OPKIT_ENGINE_POOL_LOOP_BOARD_HPP_
#define OPKIT_ENGINE_POOL_LOOP_BOARD_HPP_

#include <atomic>
#include <cstdint>
#include <exception>
#include <utility>

#include "opkit/base/function_ref.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/device/invocation.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

using RangeFunction = FunctionRef<void(int64_t, int64_t)>;

// Calls `body` for the chunks of [first, last) one after the other, on this thread.
inline void RunChunksInOrder(int64_t first, int64_t last, int64_t grain, RangeFunction body) {
  for (; last - first > grain; first += grain) body(first, first + grain);
  body(first, last);
}

// A loop over [first, last) in chunks of `grain`, which threads claim by number.
struct ParallelLoop {
  // Runs chunks until none is left. After an exception the remaining ones are skipped.
  void RunChunks(Mutex& mutex) {
    try {
      for (;;) {
        // Relaxed: the counter hands out numbers and publishes nothing; a chunk's writes reach the
        // caller through `joined`.
        const int64_t chunk = next_chunk.fetch_add(1, std::memory_order_relaxed);
        if (chunk >= chunks) return;
        const int64_t begin = first + chunk * grain;
        body(begin, last - begin > grain ? begin + grain : last);
      }
    } catch (...) {
      MutexLock lock(mutex);
      if (!error) error = std::current_exception();
      // Relaxed, like the fetch_add above.
      next_chunk.store(chunks, std::memory_order_relaxed);
    }
  }

  const int64_t first, last, grain, chunks;
  const RangeFunction body;
  const Invocation invocation = CurrentInvocation();

  // Guarded by the board's mutex.
  int may_join = 0;  // threads that may still join
  int may_wake = 0;  // threads that its joiners should still wake
  bool listed = false;
  ParallelLoop* prev = nullptr;
  ParallelLoop* next = nullptr;
  Parker* waiter = nullptr;  // the caller's Parker while the caller sleeps
  std::exception_ptr error = {};

  std::atomic<int> joined{0};  // threads inside, without the caller
  alignas(kCacheLine) std::atomic<int64_t> next_chunk{0};
};

class LoopBoard {
 public:
  // Each joiner wakes two more, so the caller pays for two wake-ups and the rest spread as a tree.
  static constexpr int kWakeFan = 2;

  // True if there is no loop to join. Reads without the lock; seq_cst for IdleList's protocol.
  bool empty() const { return !first_.load(std::memory_order_seq_cst); }

  // Posts a loop that `helpers` threads may join. Returns how many threads the caller should wake.
  int Post(ParallelLoop& loop, int helpers) {
    MutexLock lock(mutex_);
    loop.may_join = helpers;
    loop.may_wake = helpers;
    loop.listed = true;
    loop.next = first_.load(std::memory_order_relaxed);  // written under the lock
    if (loop.next) loop.next->prev = &loop;
    first_.store(&loop, std::memory_order_seq_cst);
    return TakeWakes(loop);
  }

  // Joins the newest loop (the innermost of a nest) and returns it, or null if there is none.
  // `wake` receives how many threads the caller should wake.
  ParallelLoop* Join(int* wake) {
    MutexLock lock(mutex_);
    // Relaxed: first_ is written under the lock, and `joined` is read under it or after it.
    ParallelLoop* loop = first_.load(std::memory_order_relaxed);
    if (!loop) return nullptr;
    loop->joined.fetch_add(1, std::memory_order_relaxed);
    if (--loop->may_join == 0) Remove(*loop);
    *wake = TakeWakes(*loop);
    return loop;
  }

  // Runs the joined loop's chunks and leaves it; the loop may be gone afterwards.
  void Work(ParallelLoop& loop) {
    {
      auto scope = InvocationScope::Adopt(loop.invocation);
      loop.RunChunks(mutex_);
    }
    Parker::Address address = nullptr;
    {
      MutexLock lock(mutex_);
      Remove(loop);  // no chunk is left
      Parker* waiter = loop.waiter;
      // Release: the caller sees the chunks' writes. It may return as soon as it reads zero,
      // unless it sleeps; then it waits for Set.
      if (loop.joined.fetch_sub(1, std::memory_order_release) == 1 && waiter)
        address = waiter->Set();
    }
    if (address) Parker::Wake(address);
  }

  // Ends the loop for its caller: returns when no other thread is inside, and rethrows the first
  // exception.
  void Finish(ParallelLoop& loop, uint64_t spin_ticks) {
    {
      MutexLock lock(mutex_);
      Remove(loop);
    }
    const uint64_t start = Ticks();
    // Acquire, here and below: pairs with the release in Work.
    while (loop.joined.load(std::memory_order_acquire) != 0) {
      if (Ticks() - start < spin_ticks) {
        CpuRelax();
        continue;
      }
      Parker parker;
      {
        MutexLock lock(mutex_);
        if (loop.joined.load(std::memory_order_acquire) == 0) break;
        loop.waiter = &parker;
      }
      parker.Wait();
    }
    if (loop.error) std::rethrow_exception(std::move(loop.error));
  }

  Mutex& mutex() { return mutex_; }

  void ResetAfterFork() {
    mutex_.ResetAfterFork();
    first_ = nullptr;
  }

 private:
  static int TakeWakes(ParallelLoop& loop) {
    const int wake = loop.may_wake < kWakeFan ? loop.may_wake : kWakeFan;
    loop.may_wake -= wake;
    return wake;
  }

  void Remove(ParallelLoop& loop) {
    if (!loop.listed) return;
    loop.listed = false;
    if (loop.next) loop.next->prev = loop.prev;
    if (loop.prev)
      loop.prev->next = loop.next;
    else
      first_.store(loop.next, std::memory_order_seq_cst);
  }

  Mutex mutex_;
  std::atomic<ParallelLoop*> first_{nullptr};  // loops that may still be joined
};

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_POOL_LOOP_BOARD_HPP_
