// Inbox: a queue that any thread puts nodes into without a lock and any thread takes them from, the
// oldest first. The pool's shared queue and the engine's queue of ready operations are inboxes.
#ifndef OPKIT_ENGINE_POOL_INBOX_HPP_
#define OPKIT_ENGINE_POOL_INBOX_HPP_

#include "opkit/engine/pool/spin_lock.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

struct InboxNode {
  std::atomic<InboxNode*> next{nullptr};
};

// D. Vyukov's intrusive queue (a list that always holds at least a stub node), with a lock for
// takers, since the original allows only one taker. The queue does not own its nodes; a taker sees
// everything that was written before the Put of its node.
class Inbox {
 public:
  // Adds a node. Seq_cst, as empty() is: a thread that puts a node looks for a taker afterwards,
  // and a taker that goes to sleep announces that before it looks here.
  void Put(InboxNode* node) {
    // Relaxed: the exchange publishes it.
    node->next.store(nullptr, std::memory_order_relaxed);
    InboxNode* before = tail_.exchange(node, std::memory_order_seq_cst);
    // Release: the taker sees all members of the node. Until here the list ends at `before`.
    before->next.store(node, std::memory_order_release);
  }

  // Returns the oldest node; null if there is none, or only one that is just being put.
  InboxNode* Take() {
    // Relaxed: a hint. Not read from `tail_`: every Put would wait for that cache line.
    if (head_.load(std::memory_order_relaxed) == &stub_ &&
        !stub_.next.load(std::memory_order_relaxed))
      return nullptr;
    SpinLockGuard guard(take_lock_);
    // Relaxed, as all accesses of `head_`: it is written under the lock, and empty() gives the
    // reason for its own read. Acquire, here and below: pairs with Put.
    InboxNode* head = head_.load(std::memory_order_relaxed);
    InboxNode* next = head->next.load(std::memory_order_acquire);
    if (head == &stub_) {
      if (!next) return nullptr;
      head = next;
      head_.store(head, std::memory_order_relaxed);
      next = head->next.load(std::memory_order_acquire);
    }
    if (!next) {
      // The last node leaves only when the stub is behind it.
      if (tail_.load(std::memory_order_seq_cst) != head) return nullptr;
      Put(&stub_);
      next = head->next.load(std::memory_order_acquire);
      if (!next) return nullptr;
    }
    head_.store(next, std::memory_order_relaxed);
    // The next taker soon needs these cache lines, which are in the cache of the CPU that put them.
    const auto address = reinterpret_cast<uintptr_t>(next);
    __builtin_prefetch(reinterpret_cast<const void*>(address), 1);
    __builtin_prefetch(reinterpret_cast<const void*>(address + kCacheLine), 1);
    return head;
  }

  // Never returns true while a node is in the queue. Relaxed: a taker makes the stub the tail again
  // only after it has moved `head_` on, so a thread that sees this tail also sees that head.
  bool empty() const {
    return tail_.load(std::memory_order_seq_cst) == &stub_ &&
           head_.load(std::memory_order_relaxed) == &stub_;
  }

  // Forgets the nodes, which belong to the parent; called in a forked child.
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

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_POOL_INBOX_HPP_
