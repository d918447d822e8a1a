// EngineOp: the record of one operation between push and completion, its closure and its accesses
// inside. Records are used again and again, so that a push allocates nothing.
#ifndef OPKIT_ENGINE_DEPENDENCY_ENGINE_OP_HPP_
#define OPKIT_ENGINE_DEPENDENCY_ENGINE_OP_HPP_

#include <new>
#include <type_traits>

#include "opkit/core/device.hpp"
#include "opkit/device/invocation.hpp"
#include "opkit/engine/dependency/var.hpp"
#include "opkit/engine/pool/inbox.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

enum class OpMode : uint8_t { kSynchronous, kAsynchronous, kOnDevice };

// What few operations need: more Vars, large closures, failures, devices, completion elsewhere.
// Apart from the record, so that of those that wait in their thousands, more fit into a cache.
struct OpDetails {
  static constexpr int32_t kInlineAccesses = 2;
  static constexpr size_t kClosureBytes = 64;

  Access* more_accesses = inline_accesses;
  int32_t access_capacity = kInlineAccesses;
  std::atomic<int32_t> parts{0};  // of closure and completion, how many are still to come
  Access inline_accesses[kInlineAccesses];
  alignas(std::max_align_t) unsigned char storage[kClosureBytes];

  FailurePtr failure;         // why the Vars that it writes have no valid value
  std::exception_ptr thrown;  // before it becomes a Failure
  Device device;

  // Of an asynchronous operation.
  std::exception_ptr outcome;  // what its handle, or Cancel, completed it with
  // Guarded by the engine's mutex for such operations.
  bool completable = false;
  uint32_t async_generation = 0;  // of the handle that may complete it
  EngineOp* async_prev = nullptr;
  EngineOp* async_next = nullptr;

  OpDetails() = default;
  OpDetails(const OpDetails&) = delete;
  OpDetails& operator=(const OpDetails&) = delete;
  ~OpDetails() {
    if (more_accesses != inline_accesses) delete[] more_accesses;
  }

  void ReserveAccesses(size_t n) {
    if (n <= static_cast<size_t>(access_capacity)) return;
    Access* larger = new Access[n];
    if (more_accesses != inline_accesses) delete[] more_accesses;
    more_accesses = larger;
    access_capacity = static_cast<int32_t>(n);
  }
};

// Two cache lines. Lies in an OpSlab.
struct alignas(kCacheLine) EngineOp : InboxNode {
  using FailurePtr = detail::FailurePtr;
  static constexpr size_t kClosureBytes = 32;

  // Calls the closure with the argument and ends it, or ends it alone.
  void (*closure)(EngineOp& op, bool call, void* argument) = nullptr;
  uint64_t sequence = 0;  // place in push order, from 1
  std::atomic<int32_t> waits{0};
  int32_t access_count = 0;
  int32_t priority = 0;
  OpMode mode = OpMode::kSynchronous;
  bool copies = false;
  bool updates = false;
  bool failed = false;  // `failure` or `thrown` is set
  Access first_access;

  Invocation invocation;
  const char* name = "";
  alignas(std::max_align_t) unsigned char storage[kClosureBytes];

  EngineOp() = default;
  EngineOp(const EngineOp&) = delete;
  EngineOp& operator=(const EngineOp&) = delete;

  OpDetails& details() const;
  Access& access(int32_t i) { return i == 0 ? first_access : details().more_accesses[i - 1]; }
  const Access& access(int32_t i) const {
    return i == 0 ? first_access : details().more_accesses[i - 1];
  }

  // Relaxed: whatever hands a list to another thread orders it.
  EngineOp* next_in_list() const {
    return static_cast<EngineOp*>(next.load(std::memory_order_relaxed));
  }
  void SetNextInList(EngineOp* op) { next.store(op, std::memory_order_relaxed); }

  void SetThrown(std::exception_ptr exception) {
    details().thrown = std::move(exception);
    failed = true;
  }
  void SetFailure(FailurePtr reason) {
    details().failure = std::move(reason);
    failed = true;
  }

  // F is called with no argument, or with an Argument&.
  template <class Argument, class F>
  void SetClosure(F&& f) {
    using Callable = std::decay_t<F>;
    constexpr bool kAligned = alignof(Callable) <= alignof(std::max_align_t);
    constexpr bool kHere = kAligned && sizeof(Callable) <= kClosureBytes;
    constexpr bool kInDetails = kAligned && sizeof(Callable) <= OpDetails::kClosureBytes;
    if constexpr (kHere) {
      ::new (static_cast<void*>(storage)) Callable(std::forward<F>(f));
    } else if constexpr (kInDetails) {
      ::new (static_cast<void*>(details().storage)) Callable(std::forward<F>(f));
    } else {
      ::new (static_cast<void*>(storage)) Callable*(new Callable(std::forward<F>(f)));
    }
    closure = [](EngineOp& op, bool call, void* argument) {
      Callable* callable = nullptr;
      if constexpr (kHere) {
        callable = std::launder(reinterpret_cast<Callable*>(op.storage));
      } else if constexpr (kInDetails) {
        callable = std::launder(reinterpret_cast<Callable*>(op.details().storage));
      } else {
        callable = *std::launder(reinterpret_cast<Callable**>(op.storage));
      }
      struct End {
        Callable* callable;
        ~End() {
          if constexpr (kInDetails) {
            callable->~Callable();
          } else {
            delete callable;
          }
        }
      } end{callable};
      if (!call) return;
      if constexpr (std::is_void_v<Argument>) {
        (*callable)();
      } else {
        (*callable)(std::move(*static_cast<Argument*>(argument)));
      }
    };
  }
};

// A block of records with their details beside it, found by the address: nothing points to them.
struct alignas(16384) OpSlab {
  static constexpr size_t kBytes = 16384;
  static constexpr int kOps = kBytes / sizeof(EngineOp) - 1;

  explicit OpSlab(OpSlab* previous) : previous(previous) {}

  OpSlab* const previous;
  OpDetails* const details = new OpDetails[kOps];
  EngineOp ops[kOps];
};
static_assert(sizeof(OpSlab) == OpSlab::kBytes);

inline OpDetails& EngineOp::details() const {
  auto* slab = reinterpret_cast<OpSlab*>(reinterpret_cast<uintptr_t>(this) & ~(OpSlab::kBytes - 1));
  return slab->details[this - slab->ops];
}

inline void OpList::Add(EngineOp* op) {
  op->SetNextInList(nullptr);
  last != nullptr ? last->SetNextInList(op) : static_cast<void>(first = op);
  last = op;
}
inline void OpList::Append(const OpList& list) {
  last != nullptr ? last->SetNextInList(list.first) : static_cast<void>(first = list.first);
  last = list.last;
}
inline void OpList::AddInOrder(EngineOp* op) {
  if (last == nullptr || last->sequence < op->sequence) return Add(op);
  EngineOp* before = nullptr;
  for (EngineOp* at = first; at->sequence < op->sequence; at = at->next_in_list()) before = at;
  op->SetNextInList(before != nullptr ? before->next_in_list() : first);
  before != nullptr ? before->SetNextInList(op) : static_cast<void>(first = op);
}
inline EngineOp* OpList::TakeFirst() {
  EngineOp* op = first;
  if (op == nullptr) return nullptr;
  first = op->next_in_list();
  if (first == nullptr) last = nullptr;
  return op;
}
// Acquire-release: the last grant has seen what every operation before it did, on whatever thread.
inline void OpList::AddIfGranted(EngineOp* op) {
  if (op->access_count == 1 || op->waits.fetch_sub(1, std::memory_order_acq_rel) == 1) Add(op);
}

// Blocks of objects that are never moved, nor given back before the table ends.
template <class T>
class SlabTable {
 public:
  SlabTable() = default;
  SlabTable(const SlabTable&) = delete;
  SlabTable& operator=(const SlabTable&) = delete;
  ~SlabTable() {
    while (last_ != nullptr) delete std::exchange(last_, last_->previous);
  }
  static constexpr int kObjects = 64;
  T* Add() {
    last_ = new Slab{last_, {}};
    return last_->objects;
  }

 private:
  struct Slab {
    Slab* previous;
    T objects[kObjects];
  };
  Slab* last_ = nullptr;
};

// The operations of one engine. Pushers take records here, and numbers, under one short lock; who
// completes operations gives them back many at a time, somewhere else. The records longest unused
// come first, so that they stay in the order of their addresses, as caches like it.
class OpRecords {
 public:
  OpRecords() = default;
  OpRecords(const OpRecords&) = delete;
  OpRecords& operator=(const OpRecords&) = delete;
  ~OpRecords() {
    while (last_slab_ != nullptr) {
      OpSlab* slab = std::exchange(last_slab_, last_slab_->previous);
      delete[] slab->details;
      delete slab;
    }
  }

  EngineOp* Take() {
    SpinLockGuard guard(lock_);
    if (free_ == nullptr) [[unlikely]]
      Refill();
    EngineOp* op = free_;
    free_ = op->next_in_list();
    // A later taker's, from the cache of the CPU that gave it back, which takes longer than a push.
    // Most records lie in the order of the list; where they do not, it is harmless.
    constexpr size_t kAhead = 4;
    const auto address = reinterpret_cast<uintptr_t>(free_) + kAhead * sizeof(EngineOp);
    __builtin_prefetch(reinterpret_cast<const void*>(address), 1);
    __builtin_prefetch(reinterpret_cast<const void*>(address + kCacheLine), 1);
    op->sequence = next_sequence_++;
    if (waiters_ != 0) [[unlikely]]
      CountTaken();
    return op;
  }
  // Of the operation that is pushed next.
  uint64_t next_sequence() {
    SpinLockGuard guard(lock_);
    return next_sequence_;
  }

  // The records of `count` operations, which have ended.
  void GiveBack(const OpList& list, int64_t count) {
    {
      SpinLockGuard guard(returned_lock_);
      returned_.Append(list);
    }
    outstanding_.CountDown(count);
  }

  // While one of these lives, `outstanding()` counts the operations that have not ended. Otherwise
  // it lacks those that were pushed since: a push would pay an atomic operation, and runners the
  // cache line, for what only those who wait want to know.
  class Waiter {
   public:
    explicit Waiter(OpRecords& records) : records_(records) {
      SpinLockGuard guard(records_.lock_);
      ++records_.waiters_;
      records_.CountTaken();
    }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;
    ~Waiter() {
      SpinLockGuard guard(records_.lock_);
      --records_.waiters_;
    }
    const Latch& outstanding() const { return records_.outstanding_; }

   private:
    OpRecords& records_;
  };

 private:
  // With `lock_` held: also what is taken while somebody waits is counted before it can end.
  OPKIT_COLD void CountTaken() {
    outstanding_.Add(static_cast<int64_t>(next_sequence_ - counted_before_));
    counted_before_ = next_sequence_;
  }

  OPKIT_COLD void Refill() {
    {
      SpinLockGuard guard(returned_lock_);
      free_ = std::exchange(returned_, {}).first;
    }
    if (free_ != nullptr) return;
    last_slab_ = new OpSlab(last_slab_);
    for (int i = OpSlab::kOps - 1; i >= 0; --i) {
      last_slab_->ops[i].SetNextInList(free_);
      free_ = &last_slab_->ops[i];
    }
  }

  SpinLock lock_;
  EngineOp* free_ = nullptr;
  uint64_t next_sequence_ = 1;
  uint64_t counted_before_ = 1;  // operations numbered below were added to `outstanding_`
  int waiters_ = 0;
  OpSlab* last_slab_ = nullptr;
  alignas(kCacheLine) SpinLock returned_lock_;
  OpList returned_;
  Latch outstanding_;  // below zero where operations have ended that were not added
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_ENGINE_DEPENDENCY_ENGINE_OP_HPP_
