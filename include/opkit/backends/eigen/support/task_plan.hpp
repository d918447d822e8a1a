// TaskPlan: work cut into tasks that need scratch memory. Each working thread uses one piece of the
// operator's scratch memory. Used by the convolutions and pools of the "eigen" backend.
#ifndef OPKIT_BACKENDS_EIGEN_SUPPORT_TASK_PLAN_HPP_
#define OPKIT_BACKENDS_EIGEN_SUPPORT_TASK_PLAN_HPP_

#include <algorithm>
#include <atomic>
#include <bit>

#include "opkit/engine/parallel_for.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Pieces of memory ("slots") for the threads of a loop. A thread holds one slot while it runs a
// range.
class ScratchSlots {
 public:
  // `count` slots of `size` bytes from `base` on. Size and base must be multiples of 64.
  ScratchSlots(void* base, int64_t size, int count)
      : base_(static_cast<char*>(base)), size_(size), count_(count) {}
  static constexpr int kMost = 64;
  static int64_t RoundUp(int64_t bytes) { return (bytes + 63) / 64 * 64; }

  // Holds a free slot while it lives.
  class Slot {
   public:
    explicit Slot(ScratchSlots& slots) : slots_(slots), index_(slots.Take()) {}
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
    // Release: writes to the memory happen before the next thread acquires the slot.
    ~Slot() { slots_.taken_.fetch_and(~(uint64_t{1} << index_), std::memory_order_release); }
    float* data() const { return reinterpret_cast<float*>(slots_.base_ + index_ * slots_.size_); }

   private:
    ScratchSlots& slots_;
    const int index_;
  };

 private:
  // Takes a free slot. A slot is always free, because a loop runs on at most as many threads as
  // there are slots.
  int Take() {
    for (;;) {
      uint64_t taken = taken_.load(std::memory_order_relaxed);
      const int index = std::countr_one(taken);
      if (index < count_ && taken_.compare_exchange_weak(taken, taken | uint64_t{1} << index,
                                                         std::memory_order_acquire))
        return index;
    }
  }

  char* const base_;
  const int64_t size_;
  const int count_;
  std::atomic<uint64_t> taken_{0};
};

// The number of tasks, their distribution over threads, and their scratch memory.
struct TaskPlan {
  int64_t tasks = 0;
  int64_t grain = 1;       // tasks that one thread takes at a time
  int64_t slot_bytes = 0;  // scratch memory of one thread, rounded by ScratchSlots::RoundUp

  // Slots: the largest number of threads that work at a time. ScratchBytes: the memory for all of
  // them.
  int Slots(int threads) const {
    const int64_t most = (std::min)(threads, ScratchSlots::kMost);
    return static_cast<int>((std::min)((tasks - 1) / grain + 1, most));
  }
  int64_t ScratchBytes(int threads) const { return slot_bytes * Slots(threads); }

  // Calls f(begin, end, memory of this thread) for all tasks, on the threads of the current pool.
  // `scratch` must have ScratchBytes(threads) bytes.
  template <class F>
  void Run(void* scratch, int threads, F f) const {
    ScratchSlots slots(scratch, slot_bytes, Slots(threads));
    ParallelForRange(tasks, grain, [&](int64_t begin, int64_t end) {
      const ScratchSlots::Slot slot(slots);
      f(begin, end, slot.data());
    });
  }
};

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_EIGEN_SUPPORT_TASK_PLAN_HPP_
