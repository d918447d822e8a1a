// TaskPlan: work cut into tasks of which each needs scratch memory: one piece for each thread that
// works, out of what was planned for the operator.
#ifndef OPKIT_BACKENDS_EIGEN_SUPPORT_TASK_PLAN_HPP_
#define OPKIT_BACKENDS_EIGEN_SUPPORT_TASK_PLAN_HPP_

#include <algorithm>
#include <atomic>
#include <bit>

#include "opkit/engine/parallel_for.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Memory for each of the threads that run one loop, taken for as long as a range lasts.
class ScratchSlots {
 public:
  // `size` bytes each, from `base`, a multiple of 64 like each of them.
  ScratchSlots(void* base, int64_t size, int count)
      : base_(static_cast<char*>(base)), size_(size), count_(count) {}
  static constexpr int kMost = 64;
  static int64_t RoundUp(int64_t bytes) { return (bytes + 63) / 64 * 64; }

  class Slot {
   public:
    explicit Slot(ScratchSlots& slots) : slots_(slots), index_(slots.Take()) {}
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
    // Release: what is written to the memory comes before the acquire of who takes it next.
    ~Slot() { slots_.taken_.fetch_and(~(uint64_t{1} << index_), std::memory_order_release); }
    float* data() const { return reinterpret_cast<float*>(slots_.base_ + index_ * slots_.size_); }

   private:
    ScratchSlots& slots_;
    const int index_;
  };

 private:
  // A loop runs on no more threads than there are slots, so that this finds one at once.
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

struct TaskPlan {
  int64_t tasks = 0;
  int64_t grain = 1;       // tasks that make a chunk worth handing to another thread
  int64_t slot_bytes = 0;  // scratch of one thread, by ScratchSlots::RoundUp

  // Threads that run at a time, and the memory of all of them.
  int Slots(int threads) const {
    const int64_t most = (std::min)(threads, ScratchSlots::kMost);
    return static_cast<int>((std::min)((tasks - 1) / grain + 1, most));
  }
  int64_t ScratchBytes(int threads) const { return slot_bytes * Slots(threads); }

  // f(begin, end, memory of this thread) for all tasks. `scratch`: of as many bytes as that is.
  template <class F>
  void Run(void* scratch, int threads, F f) const {
    ScratchSlots slots(scratch, slot_bytes, Slots(threads));
    ParallelForRange(tasks, grain, [&](int64_t begin, int64_t end) {
      const ScratchSlots::Slot slot(slots);
      f(begin, end, slot.data());
    });
  }
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_BACKENDS_EIGEN_SUPPORT_TASK_PLAN_HPP_
