// EngineOp: the record of one operation, with its closure and its accesses, from its push until it
// is completed. Records are used again and again, so that a push allocates nothing.
#ifndef OPKIT_ENGINE_DEPENDENCY_ENGINE_OP_HPP_
#define OPKIT_ENGINE_DEPENDENCY_ENGINE_OP_HPP_

#include <span>
#include <utility>

#include "opkit/base/index.hpp"
#include "opkit/device/invocation.hpp"
#include "opkit/engine/dependency/engine_failure.hpp"
#include "opkit/engine/dependency/operation.hpp"
#include "opkit/engine/pool/inbox.hpp"
#include "opkit/engine/pool/latch.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

class VarState;

// The place of an operation, or of a waiting thread, in the queue of one Var. An operation has one
// for each of its Vars.
struct Access {
  static constexpr uintptr_t kWrite = 1;

  Access() = default;
  // Copies are made only while the operation is prepared. Relaxed: one thread uses both.
  Access(const Access& other) { *this = other; }
  Access& operator=(const Access& other) {
    next.store(other.next.load(std::memory_order_relaxed), std::memory_order_relaxed);
    var = other.var;
    owner = other.owner;
    return *this;
  }

  // The access queued behind this access; marked with kWrite if that is an operation's write.
  std::atomic<uintptr_t> next{0};
  VarState* var = nullptr;
  uintptr_t owner = 0;  // the operation, marked with kWrite if it writes; 0 for a waiting thread

  EngineOp* op() const { return reinterpret_cast<EngineOp*>(owner & ~kWrite); }
  bool writes() const { return (owner & kWrite) != 0; }
  uintptr_t Tagged() const { return reinterpret_cast<uintptr_t>(this) | (owner & kWrite); }
  static Access* Untagged(uintptr_t tagged) { return reinterpret_cast<Access*>(tagged & ~kWrite); }
};

enum class OpMode : uint8_t { kSynchronous, kAsynchronous, kOnDevice, kCopyOnDevice };

// The members that only a few operations need: operations with several Vars, a large closure, a
// failure or a device, and asynchronous operations. They lie outside the record, because thousands
// of records may wait, and small records fit better into a cache.
struct OpDetails {
  static constexpr size_t kInlineAccesses = 3;

  Access* accesses = inline_accesses;
  size_t access_capacity = kInlineAccesses;
  Access inline_accesses[kInlineAccesses];
  // Number of the two parts (closure, completion) that have not ended.
  std::atomic<int32_t> parts{0};
  alignas(std::max_align_t) unsigned char storage[OpClosureType::kLargeBytes];

  FailurePtr failure;         // why the Vars that it writes have no valid value
  std::exception_ptr thrown;  // the exception of the closure, until it becomes a Failure
  Device device;

  // The following serve asynchronous operations.
  std::exception_ptr outcome;  // given by the handle, or Cancel, that completed it
  // Guarded by the engine's mutex.
  bool completable = false;
  uint32_t async_generation = 0;  // generation of the handle that may complete it
  EngineOp* async_prev = nullptr;
  EngineOp* async_next = nullptr;

  ~OpDetails() {
    if (accesses != inline_accesses) delete[] accesses;
  }

  Access* ReserveAccesses(size_t n) {
    if (n > access_capacity) {
      Access* larger = new Access[n];
      if (accesses != inline_accesses) delete[] accesses;
      accesses = larger;
      access_capacity = n;
    }
    return accesses;
  }
};

// A record takes two cache lines and lies in an OpSlab.
struct alignas(kCacheLine) EngineOp : InboxNode {
  const OpClosureType* closure = nullptr;  // null when there is none
  uint64_t sequence = 0;                   // place in push order, from 1
  std::atomic<int32_t> waits{0};
  int32_t access_count = 0;
  int32_t priority = 0;
  OpMode mode = OpMode::kSynchronous;
  bool updates = false;
  bool failed = false;  // `failure` or `thrown` is set
  Access only_access;

  Invocation invocation;
  const char* name = "";
  alignas(std::max_align_t) unsigned char storage[OpClosureType::kSmallBytes];

  SpanNames span_names() const { return SpanNames::OfText(name); }
  OpDetails& details() const;
  std::span<Access> accesses() {
    return {access_count <= 1 ? &only_access : details().accesses, Index(access_count)};
  }
  std::span<const Access> accesses() const { return const_cast<EngineOp*>(this)->accesses(); }

  // Relaxed: the queue that hands a list to another thread orders it.
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

  void* closure_storage(const OpClosureType& type) {
    if (type.large) [[unlikely]]
      return details().storage;
    return storage;
  }
  // Destroys the closure, if there still is one; calls it first when `call` is set.
  void EndClosure(bool call = false, Completion* completion = nullptr) {
    if (!closure) return;
    const OpClosureType& type = *std::exchange(closure, nullptr);
    type.run(closure_storage(type), call, completion);
  }
};

// A block of records, aligned to its size, with their details beside it. A record's address leads
// to its details, so no pointer is stored.
struct alignas(16384) OpSlab {
  static constexpr size_t kBytes = 16384;
  static constexpr int kOps = kBytes / sizeof(EngineOp) - 1;

  explicit OpSlab(OpSlab* slab_before) : previous(slab_before) {}
  ~OpSlab() { delete[] details; }

  OpSlab* const previous;
  OpDetails* const details = new OpDetails[kOps];
  EngineOp ops[kOps];
};
static_assert(sizeof(OpSlab) == OpSlab::kBytes);

inline OpDetails& EngineOp::details() const {
  auto* slab = reinterpret_cast<OpSlab*>(reinterpret_cast<uintptr_t>(this) & ~(OpSlab::kBytes - 1));
  return slab->details[this - slab->ops];
}

// A list of operations that are ready to run, linked through their records.
struct OpList {
  void Add(EngineOp* op) {
    op->SetNextInList(nullptr);
    Link(last, op);
    last = op;
  }
  void Append(const OpList& list) {
    Link(last, list.first);
    last = list.last;
  }
  // Adds to a list that is in push order.
  void AddInOrder(EngineOp* op) {
    if (!last || last->sequence < op->sequence) return Add(op);
    EngineOp* before = nullptr;
    for (EngineOp* at = first; at->sequence < op->sequence; at = at->next_in_list()) before = at;
    op->SetNextInList(before ? before->next_in_list() : first);
    Link(before, op);
  }
  // Counts an access that was granted to `op`, and adds `op` to the list at its last grant.
  // Acquire-release: that grant has seen the writes of all operations before `op`, on any thread.
  void AddIfGranted(EngineOp* op) {
    if (op->access_count == 1 || op->waits.fetch_sub(1, std::memory_order_acq_rel) == 1) Add(op);
  }
  // Removes the first operation; null when the list is empty.
  EngineOp* TakeFirst() {
    EngineOp* op = first;
    if (!op) return nullptr;
    first = op->next_in_list();
    if (!first) last = nullptr;
    return op;
  }

  EngineOp* first = nullptr;
  EngineOp* last = nullptr;

 private:
  void Link(EngineOp* before, EngineOp* op) {
    if (before)
      before->SetNextInList(op);
    else
      first = op;
  }
};

// The records of one engine. Pushers take records and numbers under one short lock. Threads that
// complete operations give back many records at a time, under another lock. The longest unused
// records are taken first, so that records stay in the order of their addresses, which suits the
// caches.
class OpRecords {
 public:
  ~OpRecords() {
    while (last_slab_) delete std::exchange(last_slab_, last_slab_->previous);
  }

  EngineOp* Take() {
    SpinLockGuard guard(lock_);
    if (!free_) [[unlikely]]
      Refill();
    EngineOp* op = free_;
    free_ = op->next_in_list();
    // Prefetches the record that lies kAhead records behind this one in memory: fetching a record
    // from the CPU that gave it back takes longer than a push. Most records of the list are in
    // the order of their addresses, so a later Take() takes this record. A wrong guess does no
    // harm.
    constexpr size_t kAhead = 4;
    const auto address = reinterpret_cast<uintptr_t>(free_) + kAhead * sizeof(EngineOp);
    __builtin_prefetch(reinterpret_cast<const void*>(address), 1);
    __builtin_prefetch(reinterpret_cast<const void*>(address + kCacheLine), 1);
    op->sequence = next_sequence_++;
    if (waiters_ != 0) [[unlikely]]
      CountTaken();
    return op;
  }
  // Returns the number of the operation that is pushed next.
  uint64_t next_sequence() {
    SpinLockGuard guard(lock_);
    return next_sequence_;
  }

  // Takes back the records of `count` operations that have ended.
  void GiveBack(const OpList& list, int64_t count) {
    {
      SpinLockGuard guard(returned_lock_);
      returned_.Append(list);
    }
    outstanding_.CountDown(count);
  }

  // While a Waiter exists, `outstanding()` is the number of operations that have not ended.
  // Without a Waiter no thread needs the number, so pushed operations are not counted. Counting
  // would cost every push an atomic operation, on a cache line that the pusher would share with
  // the runners.
  class Waiter {
   public:
    explicit Waiter(OpRecords& records) : records_(records) {
      SpinLockGuard guard(records_.lock_);
      ++records_.waiters_;
      records_.CountTaken();
    }
    Waiter(Waiter&&) = delete;
    ~Waiter() {
      SpinLockGuard guard(records_.lock_);
      --records_.waiters_;
    }
    const Latch& outstanding() const { return records_.outstanding_; }

   private:
    OpRecords& records_;
  };

 private:
  // Called with `lock_` held: a record that is taken while a thread waits is counted before it can
  // end.
  OPKIT_COLD void CountTaken() {
    outstanding_.Add(static_cast<int64_t>(next_sequence_ - counted_before_));
    counted_before_ = next_sequence_;
  }

  OPKIT_COLD void Refill() {
    {
      SpinLockGuard guard(returned_lock_);
      free_ = std::exchange(returned_, {}).first;
    }
    if (free_) return;
    last_slab_ = new OpSlab(last_slab_);
    for (int i = OpSlab::kOps - 1; i >= 0; --i) {
      last_slab_->ops[i].SetNextInList(free_);
      free_ = &last_slab_->ops[i];
    }
  }

  SpinLock lock_;
  EngineOp* free_ = nullptr;
  uint64_t next_sequence_ = 1;
  uint64_t counted_before_ = 1;  // operations below this number are in `outstanding_`
  int waiters_ = 0;
  OpSlab* last_slab_ = nullptr;
  alignas(kCacheLine) SpinLock returned_lock_;
  OpList returned_;
  Latch outstanding_;  // negative if operations have ended that it did not count
};

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_DEPENDENCY_ENGINE_OP_HPP_
