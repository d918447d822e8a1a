// WorkDeque: the queue of one worker of the pool. Its owner pushes and pops at the bottom (the
// newest first, still in its cache), any other thread steals at the top (the oldest). Chase and
// Lev's deque (SPAA 2005) with a ring of fixed size, so that nothing is ever allocated or
// reclaimed: a full deque refuses, and the pool's shared queue takes the overflow.
#ifndef OPKIT_ENGINE_POOL_WORK_DEQUE_HPP_
#define OPKIT_ENGINE_POOL_WORK_DEQUE_HPP_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "opkit/base/index.hpp"
#include "opkit/base/platform.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Holds pointers it does not own. The thread that gets an item sees what was written before its
// Push.
//
// Memory orders. Pop lowers `bottom_` and then reads `top_`, Steal reads `top_` and then `bottom_`;
// each must see the other when both go for the last item. The pool's parking protocol also needs
// Push ordered before the pusher's look at the sleepers. Both are store-then-load, so these
// accesses are seq_cst operations (not fences, which TSan does not model). Slots are relaxed: a
// thief uses what it read only if its compare-exchange of `top_` succeeds, and then the seq_cst
// read of `bottom_` has acquired the owner's write.
template <class T, size_t kCapacity>
class WorkDeque {
  static_assert((kCapacity & (kCapacity - 1)) == 0, "the capacity must be a power of two");

 public:
  // Owner only. Adds an item; returns false if the deque is full.
  bool Push(T* item) {
    const int64_t bottom = bottom_.load(std::memory_order_relaxed);  // only the owner writes it
    // Acquire: the slot about to be reused has been read by the thief that moved `top_` past it.
    const int64_t top = top_.load(std::memory_order_acquire);
    if (bottom - top >= static_cast<int64_t>(kCapacity)) return false;
    Slot(bottom).store(item, std::memory_order_relaxed);
    bottom_.store(bottom + 1, std::memory_order_seq_cst);
    return true;
  }

  // Owner only. Removes and returns the newest item, or null.
  T* Pop() {
    const int64_t bottom = bottom_.load(std::memory_order_relaxed) - 1;  // only the owner writes it
    // Relaxed: `top_` only grows, so an old value that already means "empty" is still right.
    if (top_.load(std::memory_order_relaxed) > bottom) return nullptr;
    bottom_.store(bottom, std::memory_order_seq_cst);
    int64_t top = top_.load(std::memory_order_seq_cst);
    T* item = nullptr;
    if (top <= bottom) {
      item = Slot(bottom).load(std::memory_order_relaxed);
      if (top < bottom) return item;  // more than one left: no thief can reach this one
      // Relaxed on failure: the value that it reads is not used.
      if (!top_.compare_exchange_strong(top, top + 1, std::memory_order_seq_cst,
                                        std::memory_order_relaxed))
        item = nullptr;
    }
    // Relaxed: the deque is empty now. A thief that reads this value finds nothing that it could
    // take.
    bottom_.store(bottom + 1, std::memory_order_relaxed);
    return item;
  }

  // Any thread. Removes and returns the oldest item, or null if there was none.
  T* Steal() {
    int64_t top = top_.load(std::memory_order_seq_cst);
    while (top < bottom_.load(std::memory_order_seq_cst)) {
      T* item = Slot(top).load(std::memory_order_relaxed);
      if (top_.compare_exchange_strong(top, top + 1, std::memory_order_seq_cst,
                                       std::memory_order_seq_cst))
        return item;
    }
    return nullptr;
  }

  // Any thread. True if the deque was empty a moment ago.
  bool empty() const {
    return top_.load(std::memory_order_seq_cst) >= bottom_.load(std::memory_order_seq_cst);
  }

  // Forgets the items, which belong to the parent; called in a forked child. Relaxed: the child has
  // one thread.
  void ResetAfterFork() {
    top_.store(0, std::memory_order_relaxed);
    bottom_.store(0, std::memory_order_relaxed);
  }

 private:
  std::atomic<T*>& Slot(int64_t index) { return slots_[Index(index) & (kCapacity - 1)]; }

  // On cache lines of their own: thieves write `top_`, the owner `bottom_`.
  alignas(kCacheLine) std::atomic<int64_t> top_{0};
  alignas(kCacheLine) std::atomic<int64_t> bottom_{0};
  alignas(kCacheLine) std::atomic<T*> slots_[kCapacity] = {};
};

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_POOL_WORK_DEQUE_HPP_
