// Failure: the exception of an operation of the engine, shared by every Var that has no valid value
// because of it. It is reported once, to the first wait.
#ifndef OPKIT_ENGINE_DEPENDENCY_ENGINE_FAILURE_HPP_
#define OPKIT_ENGINE_DEPENDENCY_ENGINE_FAILURE_HPP_

#include <atomic>
#include <exception>
#include <typeinfo>
#include <vector>

#include "opkit/base/error.hpp"
#include "opkit/base/ref_counted.hpp"
#include "opkit/engine/pool/spin_lock.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A failure of one operation. Thread-safe.
class Failure final : public RefCounted {
 public:
  // `sequence` is the place in push order of the operation that failed.
  Failure(std::exception_ptr exception, uint64_t sequence)
      : exception_(std::move(exception)), sequence_(sequence) {}

  const std::exception_ptr& exception() const { return exception_; }
  uint64_t sequence() const { return sequence_; }

  // True if the operation pushed as number `sequence` must be skipped. Operations that were pushed
  // before the report are still skipped, even if they run later, as if they had run at once.
  // Relaxed, here and below: no other data is read because of this number, and the rest of the
  // object never changes.
  bool ConcernsOperation(uint64_t sequence) const {
    const uint64_t reported = reported_.load(std::memory_order_relaxed);
    return reported == 0 || sequence < reported;
  }
  bool reported() const { return reported_.load(std::memory_order_relaxed) != 0; }
  // Marks the failure as reported. Returns true for the one caller that is to rethrow it.
  // `next_sequence` is the number of the next push, at least 1.
  bool Report(uint64_t next_sequence) {
    uint64_t expected = 0;
    return reported_.compare_exchange_strong(expected, next_sequence, std::memory_order_relaxed);
  }

  // Counts Vars that are about to hold the failure; called before the first Var holds it.
  void AddHolders(int64_t n) { holders_.fetch_add(n, std::memory_order_relaxed); }
  // Counts a Var that was overwritten successfully; the last overwrite discards the failure
  // unreported.
  void Overwritten() {
    if (holders_.fetch_sub(1, std::memory_order_relaxed) == 1) Report(1);
  }

 private:
  const std::exception_ptr exception_;
  const uint64_t sequence_;
  std::atomic<uint64_t> reported_{0};
  std::atomic<int64_t> holders_{0};
};

using FailurePtr = IntrusivePtr<Failure>;

// Adds the name of the operation, if it has one, to an Error that happened in it. Returns a copy,
// since events may share the original. Other exceptions stay as they are.
OPKIT_COLD inline std::exception_ptr Named(const char* operation, std::exception_ptr exception) {
  if (*operation == '\0') return exception;
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    if (typeid(error) != typeid(Error)) return exception;
    Error named = error;
    named.AddContext(StrCat("in the operation \"", operation, "\" of an engine"));
    return std::make_exception_ptr(std::move(named));
  } catch (...) {
    return exception;
  }
}

inline std::exception_ptr CancelledError(const char* operation) {
  return std::make_exception_ptr(
      Error(ErrorCode::kCancelled, StrCat("the operation \"", operation, "\" was cancelled")));
}

// The failures that were not reported yet. Only failing operations and WaitForAll come here.
class FailureLog {
 public:
  void Add(FailurePtr failure) {
    MutexLock lock(mutex_);
    if (failures_.size() >= prune_at_) {
      std::erase_if(failures_, [](const FailurePtr& f) { return f->reported(); });
      prune_at_ = 2 * failures_.size() + kPruneAt;
    }
    failures_.push_back(std::move(failure));
  }

  // Reports all failures and returns the one whose operation was pushed first; null if there is
  // none.
  FailurePtr ReportAll(uint64_t next_sequence) {
    MutexLock lock(mutex_);
    FailurePtr first;
    for (FailurePtr& failure : failures_) {
      if (!failure->Report(next_sequence)) continue;
      if (!first || failure->sequence() < first->sequence()) first = failure;
    }
    failures_.clear();
    return first;
  }

 private:
  static constexpr size_t kPruneAt = 64;
  Mutex mutex_;
  std::vector<FailurePtr> failures_;
  size_t prune_at_ = kPruneAt;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_DEPENDENCY_ENGINE_FAILURE_HPP_
