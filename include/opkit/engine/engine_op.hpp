// EngineOp: the record of one operation between push and completion, its closure and its accesses
// inside. Records are used again and again, so that a push allocates nothing.
#ifndef OPKIT_ENGINE_ENGINE_OP_HPP_
#define OPKIT_ENGINE_ENGINE_OP_HPP_

#include <new>
#include <type_traits>

#include "opkit/core/device.hpp"
#include "opkit/device/invocation.hpp"
#include "opkit/engine/inbox.hpp"
#include "opkit/engine/var.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

enum class OpMode : uint8_t { kSynchronous, kAsynchronous, kOnDevice };

// In the order of use: an operation with one Var and a closure of 32 bytes stays within the first
// two cache lines.
struct alignas(kCacheLine) EngineOp : InboxNode {
  static constexpr size_t kClosureBytes = 64;
  static constexpr int32_t kInlineAccesses = 4;

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

  FailurePtr failure;         // why the Vars that it writes have no valid value
  std::exception_ptr thrown;  // before it becomes a Failure
  Access* more_accesses = inline_accesses;
  Device device;
  int32_t access_capacity = kInlineAccesses;

  // Of an asynchronous operation.
  std::exception_ptr outcome;  // what its handle, or Cancel, completed it with
  // Guarded by the engine's mutex for such operations, but for `parts`.
  bool completable = false;
  uint32_t async_generation = 0;  // of the handle that may complete it
  std::atomic<int32_t> parts{0};  // of closure and completion, how many are still to come
  EngineOp* async_prev = nullptr;
  EngineOp* async_next = nullptr;
  Access inline_accesses[kInlineAccesses - 1];

  EngineOp() = default;
  EngineOp(const EngineOp&) = delete;
  EngineOp& operator=(const EngineOp&) = delete;
  ~EngineOp() {
    if (more_accesses != inline_accesses) delete[] more_accesses;
  }

  Access& access(int32_t i) { return i == 0 ? first_access : more_accesses[i - 1]; }
  const Access& access(int32_t i) const { return i == 0 ? first_access : more_accesses[i - 1]; }
  void ReserveAccesses(size_t n) {
    if (n <= static_cast<size_t>(access_capacity)) return;
    Access* larger = new Access[n - 1];
    if (more_accesses != inline_accesses) delete[] more_accesses;
    more_accesses = larger;
    access_capacity = static_cast<int32_t>(n);
  }

  // Relaxed: whatever hands a list to another thread orders it.
  EngineOp* next_in_list() const {
    return static_cast<EngineOp*>(next.load(std::memory_order_relaxed));
  }
  void SetNextInList(EngineOp* op) { next.store(op, std::memory_order_relaxed); }

  void SetThrown(std::exception_ptr exception) {
    thrown = std::move(exception);
    failed = true;
  }
  void SetFailure(FailurePtr reason) {
    failure = std::move(reason);
    failed = true;
  }

  // F is called with no argument, or with an Argument&.
  template <class Argument, class F>
  void SetClosure(F&& f) {
    using Callable = std::decay_t<F>;
    constexpr bool kFits =
        sizeof(Callable) <= kClosureBytes && alignof(Callable) <= alignof(std::max_align_t);
    if constexpr (kFits) {
      ::new (static_cast<void*>(storage)) Callable(std::forward<F>(f));
    } else {
      ::new (static_cast<void*>(storage)) Callable*(new Callable(std::forward<F>(f)));
    }
    closure = [](EngineOp& op, bool call, void* argument) {
      Callable* callable = nullptr;
      if constexpr (kFits) {
        callable = std::launder(reinterpret_cast<Callable*>(op.storage));
      } else {
        callable = *std::launder(reinterpret_cast<Callable**>(op.storage));
      }
      struct End {
        Callable* callable;
        ~End() {
          if constexpr (kFits) {
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

inline void OpList::Add(EngineOp* op) {
  op->SetNextInList(nullptr);
  last != nullptr ? last->SetNextInList(op) : static_cast<void>(first = op);
  last = op;
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
// completes operations gives them back many at a time, somewhere else.
class OpRecords {
 public:
  EngineOp* Take() {
    SpinLockGuard guard(lock_);
    if (free_ == nullptr) [[unlikely]]
      Refill();
    EngineOp* op = free_;
    free_ = op->next_in_list();
    // The next taker's, from the cache of the CPU that gave it back; null is harmless.
    const auto address = reinterpret_cast<uintptr_t>(free_);
    __builtin_prefetch(reinterpret_cast<const void*>(address), 1);
    __builtin_prefetch(reinterpret_cast<const void*>(address + kCacheLine), 1);
    op->sequence = next_sequence_++;
    return op;
  }
  // Of the operation that is pushed next.
  uint64_t next_sequence() {
    SpinLockGuard guard(lock_);
    return next_sequence_;
  }

  void GiveBack(const OpList& list) {
    EngineOp* head = returned_.load(std::memory_order_relaxed);
    do {
      list.last->SetNextInList(head);
      // Release: whoever takes the records sees what was done with them.
    } while (!returned_.compare_exchange_weak(head, list.first, std::memory_order_release,
                                              std::memory_order_relaxed));
  }

 private:
  OPKIT_COLD void Refill() {
    // The whole list at once: there is no other taker, and no ABA.
    free_ = returned_.exchange(nullptr, std::memory_order_acquire);
    if (free_ != nullptr) return;
    EngineOp* fresh = slabs_.Add();
    for (int i = SlabTable<EngineOp>::kObjects - 1; i >= 0; --i) {
      fresh[i].SetNextInList(free_);
      free_ = &fresh[i];
    }
  }

  SpinLock lock_;
  EngineOp* free_ = nullptr;
  uint64_t next_sequence_ = 1;
  SlabTable<EngineOp> slabs_;
  alignas(kCacheLine) std::atomic<EngineOp*> returned_{nullptr};
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_ENGINE_ENGINE_OP_HPP_
