// VarState: the queue of accesses that every Var keeps, and the rules by which they are granted.
#ifndef OPKIT_ENGINE_DEPENDENCY_VAR_STATE_HPP_
#define OPKIT_ENGINE_DEPENDENCY_VAR_STATE_HPP_

#include <memory>
#include <vector>

#include "opkit/engine/dependency/engine_op.hpp"
#include "opkit/engine/pool/latch.hpp"
#include "opkit/engine/pool/spin_lock.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A thread that waits until every pushed write of the Var has ended: a reader without an operation,
// on that thread's stack.
struct VarWaiter : Access {
  Latch latch{1};
  Access* prev = nullptr;
  bool granted = false;
  FailurePtr failure;
};

// The queue of one Var, in push order. Members are called with `lock` held, except Release and
// Recycle.
//
// A thread that ends a write passes the Var to a write that is next in the queue. It does so
// without the lock and without the members that pushers use. In a chain of writes, pushing and
// completing share no cache line of the Var.
class alignas(kCacheLine) VarState {
 public:
  SpinLock lock;
  uint32_t generation = 0;  // the generation of valid handles
  VarState* next_free = nullptr;

 private:
  // While a write is active the queue hangs behind it, else behind `head_`.
  bool writing_ = false;
  bool deleted_ = false;
  int32_t readers_ = 0;
  Access* head_ = nullptr;  // the write that waits for `readers_`
  Access* tail_ = nullptr;

 public:
  // Written by the active writer alone, read by readers and waiters once they are granted.
  alignas(kCacheLine) std::atomic<uint64_t> version{0};
  FailurePtr failure;

  bool HasPendingWrites() const { return writing_ || head_; }

  // Adds an access. Returns true if it is granted at once; it is then not in the queue, but must be
  // released.
  bool Append(Access& access) {
    access.next.store(0, std::memory_order_relaxed);  // published by Enqueue
    if (access.writes()) {
      if (!writing_ && readers_ == 0) {
        writing_ = true;
        tail_ = &access;
        return true;
      }
    } else if (!HasPendingWrites()) {
      ++readers_;
      return true;
    }
    Enqueue(access);
    return false;
  }

  // Adds a waiter; may be called only while writes are pending. A waiter is granted with the reads
  // around it.
  void AppendWaiter(VarWaiter& waiter) {
    waiter.prev = tail_;
    Enqueue(waiter);
  }

  // Removes a waiter that gives up. The access before it is an active write, or a read or waiter
  // that is not granted either. Each of these can be released only with the lock, because no write
  // follows it.
  void Remove(VarWaiter& waiter) {
    // Relaxed: written under the lock. Release: as in Enqueue.
    const uintptr_t next = waiter.next.load(std::memory_order_relaxed);
    waiter.prev->next.store(next, std::memory_order_release);
    if (tail_ == &waiter)
      tail_ = waiter.prev;
    else if (Access* after = Access::Untagged(next); after->owner == 0)
      static_cast<VarWaiter*>(after)->prev = waiter.prev;
  }

  // Ends a granted access; called without the lock. Adds the operations that can run because of it
  // to `ready`. Returns true if the Var was deleted and this was its last access.
  bool Release(Access& access, OpList& ready) {
    VarWaiter* waiters = nullptr;
    bool last = false;
    if (access.writes()) {
      // Acquire: pairs with Enqueue, so that all members of the next access are visible.
      const uintptr_t next = access.next.load(std::memory_order_acquire);
      if ((next & Access::kWrite) != 0) {
        ready.AddIfGranted(Access::Untagged(next)->op());
        return false;
      }
      SpinLockGuard guard(lock);
      writing_ = false;
      // Relaxed, here and below: written under the lock.
      last =
          GrantFrom(Access::Untagged(access.next.load(std::memory_order_relaxed)), ready, waiters);
    } else {
      SpinLockGuard guard(lock);
      if (--readers_ == 0) last = GrantFrom(head_, ready, waiters);
    }
    while (waiters) {
      auto* next =
          static_cast<VarWaiter*>(Access::Untagged(waiters->next.load(std::memory_order_relaxed)));
      waiters->latch.CountDown();  // the waiter may be gone from here on
      waiters = next;
    }
    return last;
  }

  // Makes all handles invalid. Returns true if no access is left.
  bool Delete() {
    ++generation;
    deleted_ = true;
    return !HasPendingWrites() && readers_ == 0;
  }
  // Makes the state new for the next NewVar, whose lock publishes it.
  void Recycle() {
    deleted_ = false;
    failure = {};
    version.store(0, std::memory_order_relaxed);
  }

 private:
  void Enqueue(Access& access) {
    if (tail_) {
      // Release: a writer that finds the access without the lock sees all its members.
      tail_->next.store(access.Tagged(), std::memory_order_release);
    } else {
      head_ = &access;
    }
    tail_ = &access;
  }

  // Grants the accesses from `at` on that go together: reads and waiters up to the next write, or
  // one write. An operation that is granted here cannot run before the lock is released, or the
  // access's `next` has been read. Returns true if no access is left and the Var was deleted.
  bool GrantFrom(Access* at, OpList& ready, VarWaiter*& waiters) {
    while (at && !at->writes()) {
      Access* next = Access::Untagged(at->next.load(std::memory_order_relaxed));
      if (at->owner != 0) {
        ++readers_;
        ready.AddIfGranted(at->op());
      } else {
        auto* waiter = static_cast<VarWaiter*>(at);
        waiter->failure = failure;
        waiter->granted = true;
        waiter->next.store(reinterpret_cast<uintptr_t>(static_cast<Access*>(waiters)),
                           std::memory_order_relaxed);
        waiters = waiter;
      }
      at = next;
    }
    head_ = at;
    if (!at) {
      tail_ = nullptr;
    } else if (readers_ == 0) {
      head_ = nullptr;
      writing_ = true;
      ready.AddIfGranted(at->op());
    }
    return deleted_ && !at && readers_ == 0;
  }
};

// The Vars of one engine. Thread-safe. States are never moved, and their memory is freed only with
// the table.
class VarTable {
 public:
  VarState* Take() {
    SpinLockGuard guard(lock_);
    if (!free_) {
      constexpr size_t kBlock = 64;
      blocks_.push_back(std::make_unique<VarState[]>(kBlock));
      for (size_t i = kBlock; i-- > 0;)
        blocks_.back()[i].next_free = std::exchange(free_, &blocks_.back()[i]);
    }
    return std::exchange(free_, free_->next_free);
  }
  void GiveBack(VarState& state) {
    state.Recycle();
    SpinLockGuard guard(lock_);
    state.next_free = std::exchange(free_, &state);
  }

 private:
  SpinLock lock_;
  VarState* free_ = nullptr;
  std::vector<std::unique_ptr<VarState[]>> blocks_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_DEPENDENCY_VAR_STATE_HPP_
