// Var: what operations of the engine depend on, with many readers or one writer at a time. Here is
// the queue of accesses that every Var keeps, and the rules by which they are granted.
#ifndef OPKIT_ENGINE_DEPENDENCY_VAR_HPP_
#define OPKIT_ENGINE_DEPENDENCY_VAR_HPP_

#include <initializer_list>
#include <vector>

#include "opkit/engine/dependency/engine_failure.hpp"
#include "opkit/engine/pool/latch.hpp"

namespace opkit::inline OPKIT_ABI {

namespace detail {
struct EngineOp;
template <class Op>
class BasicEngineCore;
using EngineCore = BasicEngineCore<EngineOp>;
class VarState;
}  // namespace detail

// A handle, freely copied. It stands for nothing that the engine looks into: a program lets it
// stand for a tensor, a file, a random generator. Made by Engine::NewVar, ended by
// Engine::DeleteVar; using it after that, or with another engine, is an Error.
class Var {
 public:
  Var() = default;
  explicit operator bool() const { return state_ != nullptr; }
  friend bool operator==(const Var&, const Var&) = default;

 private:
  template <class Op>
  friend class detail::BasicEngineCore;
  Var(detail::VarState* state, uint32_t generation, uint32_t engine)
      : state_(state), generation_(generation), engine_(engine) {}

  detail::VarState* state_ = nullptr;
  uint32_t generation_ = 0;
  uint32_t engine_ = 0;  // looked at before `state_`, which dies with its engine
};

// The Vars of one call, seen as a range: `{a, b}`, `{}` or a std::vector<Var>.
class VarList {
 public:
  VarList() = default;
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push  // as long as the call, which is as long as the list is looked at
#pragma GCC diagnostic ignored "-Winit-list-lifetime"
#endif
  VarList(std::initializer_list<Var> vars) : begin_(vars.begin()), size_(vars.size()) {}
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
  VarList(const std::vector<Var>& vars) : begin_(vars.data()), size_(vars.size()) {}

  size_t size() const { return size_; }
  const Var* begin() const { return begin_; }
  const Var* end() const { return begin_ + size_; }

 private:
  const Var* begin_ = nullptr;
  size_t size_ = 0;
};

namespace detail {

// The place of an operation, or of a waiting thread, in the queue of one Var. An operation has one
// for each of its Vars.
struct Access {
  static constexpr uintptr_t kWrite = 1;

  // The access queued behind this one; marked with kWrite if that is an operation's write.
  std::atomic<uintptr_t> next{0};
  VarState* var = nullptr;
  uintptr_t owner = 0;  // the operation, marked with kWrite if it writes; 0 for a waiting thread

  EngineOp* op() const { return reinterpret_cast<EngineOp*>(owner & ~kWrite); }
  bool writes() const { return (owner & kWrite) != 0; }
  uintptr_t Tagged() const { return reinterpret_cast<uintptr_t>(this) | (owner & kWrite); }
  static Access* Untagged(uintptr_t tagged) { return reinterpret_cast<Access*>(tagged & ~kWrite); }
};

// A thread that waits until everything that was to write the Var has: a reader without an
// operation, on that thread's stack.
struct VarWaiter : Access {
  Latch latch{1};
  Access* prev = nullptr;
  bool granted = false;
  FailurePtr failure;
};

// Operations that wait for nothing any more, in a list.
struct OpList {
  void Add(EngineOp* op);
  void Append(const OpList& list);
  void AddInOrder(EngineOp* op);    // of pushes, into a list in that order
  void AddIfGranted(EngineOp* op);  // counts one grant, adds it with the last one
  EngineOp* TakeFirst();
  EngineOp* first = nullptr;
  EngineOp* last = nullptr;
};

// The queue of one Var, in push order. Members are called with `lock` held unless they say
// otherwise.
//
// Who ends a write hands the Var to a queued write that comes next without the lock, and without
// touching what pushers touch: in a chain of writes, pushing and completing meet nowhere.
class alignas(kCacheLine) VarState {
 public:
  SpinLock lock;
  uint32_t generation = 0;  // of the handles that are good
  VarState* next_free = nullptr;

 private:
  // While a write is active the queue hangs behind it, else behind `head_`.
  bool writing_ = false;
  bool deleted_ = false;
  int32_t readers_ = 0;
  Access* head_ = nullptr;  // the write that waits for `readers_`
  Access* tail_ = nullptr;

 public:
  // What the active writer alone writes, and readers and waiters read once they are granted.
  alignas(kCacheLine) std::atomic<uint64_t> version{0};
  FailurePtr failure;

  bool HasPendingWrites() const { return writing_ || head_ != nullptr; }

  // True when the access is granted at once; it is not in the queue then, but must be released.
  bool Append(Access& access) {
    access.next.store(0, std::memory_order_relaxed);
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

  // Only where there are pending writes. A waiter is granted with the reads around it.
  void AppendWaiter(VarWaiter& waiter) {
    waiter.prev = tail_;
    Enqueue(waiter);
  }

  // A waiter that gives up. What is before it is a write that goes on, or a read or waiter that is
  // not granted either; each can be released only with the lock, because what follows is no write.
  void Remove(VarWaiter& waiter) {
    const uintptr_t next = waiter.next.load(std::memory_order_relaxed);
    waiter.prev->next.store(next, std::memory_order_release);
    if (tail_ == &waiter) {
      tail_ = waiter.prev;
    } else if (Access* after = Access::Untagged(next); after->owner == 0) {
      static_cast<VarWaiter*>(after)->prev = waiter.prev;
    }
  }

  // Ends a granted access, without the lock. What it lets go on is added to `ready`. True when the
  // Var was deleted and this was its last access.
  bool Release(Access& access, OpList& ready) {
    VarWaiter* waiters = nullptr;
    bool last = false;
    if (access.writes()) {
      // Acquire: pairs with Enqueue, so that the next access is whole.
      const uintptr_t next = access.next.load(std::memory_order_acquire);
      if ((next & Access::kWrite) != 0) {
        ready.AddIfGranted(Access::Untagged(next)->op());
        return false;
      }
      SpinLockGuard guard(lock);
      writing_ = false;
      // Relaxed: written under the lock.
      last =
          GrantFrom(Access::Untagged(access.next.load(std::memory_order_relaxed)), ready, waiters);
    } else {
      SpinLockGuard guard(lock);
      if (--readers_ == 0) last = GrantFrom(head_, ready, waiters);
    }
    while (waiters != nullptr) {
      auto* next =
          static_cast<VarWaiter*>(Access::Untagged(waiters->next.load(std::memory_order_relaxed)));
      waiters->latch.CountDown();  // gone from here on
      waiters = next;
    }
    return last;
  }

  // No handle is good any more. True when no access is left either.
  bool Delete() {
    ++generation;
    deleted_ = true;
    return !HasPendingWrites() && readers_ == 0;
  }
  // For the next NewVar.
  void Recycle() {
    deleted_ = false;
    failure = {};
    version.store(0, std::memory_order_relaxed);
  }

 private:
  void Enqueue(Access& access) {
    if (tail_ != nullptr) {
      // Release: a writer that finds it without the lock sees the access whole.
      tail_->next.store(access.Tagged(), std::memory_order_release);
    } else {
      head_ = &access;
    }
    tail_ = &access;
  }

  // Grants the accesses from `at` on that go together: reads and waiters up to the next write, or
  // one write. An operation that is granted here cannot run before the lock is let go, or the
  // access's `next` has been read. True when nothing is left and the Var deleted.
  bool GrantFrom(Access* at, OpList& ready, VarWaiter*& waiters) {
    while (at != nullptr && !at->writes()) {
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
    if (at == nullptr) {
      tail_ = nullptr;
    } else if (readers_ == 0) {
      head_ = nullptr;
      writing_ = true;
      ready.AddIfGranted(at->op());
    }
    return deleted_ && at == nullptr && readers_ == 0;
  }
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_ENGINE_DEPENDENCY_VAR_HPP_
