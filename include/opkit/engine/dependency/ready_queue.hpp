// ReadyQueue: operations that only wait for a thread. The highest priority comes first; the order
// of arrival decides among equals.
#ifndef OPKIT_ENGINE_DEPENDENCY_READY_QUEUE_HPP_
#define OPKIT_ENGINE_DEPENDENCY_READY_QUEUE_HPP_

#include <algorithm>
#include <climits>
#include <vector>

#include "opkit/engine/dependency/engine_op.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Thread-safe. Nearly all operations have priority 0; these are in an inbox. A queue for each
// worker would be cheaper still. But in such a queue an operation could stand behind another
// operation that waits for it. Operations of other priorities are in a heap under a lock; `top_`
// shows if the heap has any.
class ReadyQueue {
 public:
  void Push(EngineOp* op) {
    if (op->priority != 0) [[unlikely]]
      return PushHeap(op);
    normal_.Put(op);
  }

  // Returns the best operation; null if there is none, or only one that is just being pushed.
  EngineOp* Take() {
    // Relaxed, here and below: a hint.
    const int top = top_.load(std::memory_order_relaxed);
    if (top > 0)
      if (EngineOp* op = TakeHeap(1)) return op;
    if (InboxNode* node = normal_.Take()) return static_cast<EngineOp*>(node);
    return top != kNone ? TakeHeap(kNone) : nullptr;
  }

  // True if an operation of this priority should let another operation run first.
  bool HasBetterThan(int priority) const {
    return top_.load(std::memory_order_relaxed) > priority || (priority < 0 && !normal_.empty());
  }

  // Never returns true while an operation is in the queue. Seq_cst, as pushes are: a thread that
  // pushes looks for runners afterwards, and a runner that leaves announces that before it looks
  // here.
  bool empty() const { return normal_.empty() && top_.load(std::memory_order_seq_cst) == kNone; }

 private:
  static constexpr int kNone = INT_MIN;

  static bool ComesLater(const EngineOp* a, const EngineOp* b) {
    return a->priority != b->priority ? a->priority < b->priority : a->sequence > b->sequence;
  }

  OPKIT_COLD void PushHeap(EngineOp* op) {
    MutexLock lock(heap_mutex_);
    heap_.push_back(op);
    std::push_heap(heap_.begin(), heap_.end(), ComesLater);
    top_.store(heap_[0]->priority, std::memory_order_seq_cst);
  }

  OPKIT_COLD EngineOp* TakeHeap(int lowest) {
    MutexLock lock(heap_mutex_);
    if (heap_.empty() || heap_[0]->priority < lowest) return nullptr;
    std::pop_heap(heap_.begin(), heap_.end(), ComesLater);
    EngineOp* best = heap_.back();
    heap_.pop_back();
    top_.store(heap_.empty() ? kNone : heap_[0]->priority, std::memory_order_seq_cst);
    return best;
  }

  Inbox normal_;
  alignas(kCacheLine) std::atomic<int> top_{kNone};  // the heap's best priority
  Mutex heap_mutex_;
  std::vector<EngineOp*> heap_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_DEPENDENCY_READY_QUEUE_HPP_
