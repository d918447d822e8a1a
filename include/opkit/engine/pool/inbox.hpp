// Inbox: a queue that any thread puts into without a lock and any thread takes from, the oldest
// first. The pool's shared queue, and the engine's of operations that are ready.
#ifndef OPKIT_ENGINE_POOL_INBOX_HPP_
#define OPKIT_ENGINE_POOL_INBOX_HPP_

#include "opkit/engine/pool/spin_lock.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

struct InboxNode {
  InboxNode() = default;
  InboxNode(const InboxNode&) {}  // a copy is in no queue
  InboxNode& operator=(const InboxNode&) = delete;

  std::atomic<InboxNode*> next{nullptr};
};

// D. Vyukov's intrusive queue (a list that always holds a stub, at least), with a lock for takers,
// who are many here. Nodes are their owner's; what was written before Put is seen by who takes.
class Inbox {
 public:
  Inbox() = default;
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // Seq_cst, as empty() is: who puts looks for somebody who takes afterwards, and who goes to sleep
  // looks here after saying so.
  void Put(InboxNode* node) {
    node->next.store(nullptr, std::memory_order_relaxed);
    InboxNode* before = tail_.exchange(node, std::memory_order_seq_cst);
    // Release: the taker sees the node whole. Until here the list ends at `before`.
    before->next.store(node, std::memory_order_release);
  }

  // Null where there is none, or one that is just being put.
  InboxNode* Take() {
    // Relaxed: a hint. Not from `tail_`: every Put would wait for its line where somebody looks.
    if (head_.load(std::memory_order_relaxed) == &stub_ &&
        stub_.next.load(std::memory_order_relaxed) == nullptr) {
      return nullptr;
    }
    SpinLockGuard guard(take_lock_);
    // Relaxed, as all that is done to it: written under the lock, and empty() says why it may look.
    // Acquire, here and below: pairs with Put.
    InboxNode* head = head_.load(std::memory_order_relaxed);
    InboxNode* next = head->next.load(std::memory_order_acquire);
    if (head == &stub_) {
      if (next == nullptr) return nullptr;
      head = next;
      head_.store(head, std::memory_order_relaxed);
      next = head->next.load(std::memory_order_acquire);
    }
    if (next == nullptr) {
      // The last one leaves only when the stub is behind it.
      if (tail_.load(std::memory_order_seq_cst) != head) return nullptr;
      Put(&stub_);
      next = head->next.load(std::memory_order_acquire);
      if (next == nullptr) return nullptr;
    }
    head_.store(next, std::memory_order_relaxed);
    // Its lines will be wanted soon, and are in the cache of the CPU that put it.
    const auto address = reinterpret_cast<uintptr_t>(next);
    __builtin_prefetch(reinterpret_cast<const void*>(address), 1);
    __builtin_prefetch(reinterpret_cast<const void*>(address + kCacheLine), 1);
    return head;
  }

  // Never true while something is in it. Relaxed: a stub that is the tail again was put there by a
  // taker that had moved `head_` on before, and seeing the one is seeing the other.
  bool empty() const {
    return tail_.load(std::memory_order_seq_cst) == &stub_ &&
           head_.load(std::memory_order_relaxed) == &stub_;
  }

  // In a forked child: forgets the nodes, which belong to the parent.
  void ResetAfterFork() {
    take_lock_.ResetAfterFork();
    stub_.next = nullptr;
    head_ = tail_ = &stub_;
  }

 private:
  InboxNode stub_;
  alignas(kCacheLine) std::atomic<InboxNode*> tail_{&stub_};
  alignas(kCacheLine) SpinLock take_lock_;
  std::atomic<InboxNode*> head_{&stub_};
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_ENGINE_POOL_INBOX_HPP_
