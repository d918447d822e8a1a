// Operators that stay ready between the calls of a host: a table for each thread, by operator and
// attributes, and a pool for a host's kernel that several threads run.
#ifndef OPKIT_EXPORT_KEPT_OPERATORS_HPP_
#define OPKIT_EXPORT_KEPT_OPERATORS_HPP_

#include <memory>
#include <mutex>
#include <thread>

#include "opkit/export/exported_operator.hpp"
#include "opkit/export/ready_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The raw bytes of a call's facts: its attributes, which inputs are left out, the device. Two calls
// with equal bytes may use the same ready operator. Allocates only beyond 256 bytes.
class OPKIT_IMAGE_LOCAL CallKey {
 public:
  void AddBytes(const void* bytes, size_t count) {
    if (count <= sizeof inline_ - size_ && long_.empty()) [[likely]]
      std::memcpy(inline_ + size_, bytes, count);
    else
      AddLong(bytes, count);
    size_ += count;
  }
  // T has no padding.
  template <class T>
  void Add(const T& value) {
    static_assert(std::has_unique_object_representations_v<T> || std::is_floating_point_v<T>);
    AddBytes(&value, sizeof value);
  }
  // Adds the length too, so that two texts are not taken for one.
  void AddText(std::string_view text) {
    Add(text.size());
    AddBytes(text.data(), text.size());
  }
  std::string_view bytes() const { return {long_.empty() ? inline_ : long_.data(), size_}; }

 private:
  void AddLong(const void* bytes, size_t count);

  size_t size_ = 0;
  char inline_[256];
  std::string long_;
};

// The right to make one call with a ready operator. Ends the call by ReadyOperator::Release.
class OPKIT_IMAGE_LOCAL Lease {
 public:
  // Calls end(owner, op) at last; `end` may be null.
  using End = void (*)(void* owner, ReadyOperator* op) noexcept;
  Lease(ReadyOperator& op, End end, void* owner) : op_(&op), end_(end), owner_(owner) {}
  Lease(Lease&& other) noexcept : op_(other.op_), end_(other.end_), owner_(other.owner_) {
    other.op_ = nullptr;
  }
  ~Lease() {
    if (!op_) return;
    op_->Release();
    if (end_) end_(owner_, op_);
  }
  ReadyOperator& operator*() const { return *op_; }
  ReadyOperator* operator->() const { return op_; }

 private:
  ReadyOperator* op_;
  End end_;
  void* owner_;
};

using MakeReadyOperator = FunctionRef<std::unique_ptr<ReadyOperator>()>;
// Returns this thread's operator for the key; `make` makes it if there is none. A thread keeps the
// 16 operators that it used last. A call from inside of a call gets an operator of its own. Throws
// what `make` throws. Costs about 20 ns if the operator is kept.
OPKIT_IMAGE_LOCAL Lease KeptOperator(const ExportedOperator& op, const CallKey& key,
                                     MakeReadyOperator make);

// The ready operators of one kernel of a host that runs the kernel in several threads at once.
// Thread-safe. A stateful operator has one ready operator, and a call waits for the call before it.
class OPKIT_IMAGE_LOCAL OperatorPool {
 public:
  // Makes one operator, so that wrong attributes are an Error when the host makes the kernel.
  // Throws the errors of ReadyOperator.
  OperatorPool(const ExportedOperator& op, std::vector<int> present, Arguments args,
               Device device = {}, int num_outputs = -1)
      : OperatorPool(op, std::move(present), std::move(args),
                     InvokeOptions{.device = device, .num_outputs = num_outputs}) {}
  OperatorPool(const ExportedOperator& op, std::vector<int> present, Arguments args,
               const InvokeOptions& options);
  // Returns an idle operator, or makes one. Throws kFailedPrecondition if a stateful operator
  // calls itself.
  Lease Take();
  const ExportedOperator& exported() const { return op_; }
  const Arguments& args() const { return args_; }

 private:
  std::unique_ptr<ReadyOperator> Make() const;

  const ExportedOperator& op_;
  const std::vector<int> present_;
  const Arguments args_;
  const InvokeOptions options_;
  const bool one_at_a_time_;
  std::mutex mutex_;                       // guards idle_; of a stateful operator: a call holds it
  std::atomic<std::thread::id> holder_{};  // the thread with the call of a stateful operator
  size_t made_ = 1;
  std::vector<std::unique_ptr<ReadyOperator>> idle_;
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/export/impl/kept_operators.ipp"
#endif

#endif  // OPKIT_EXPORT_KEPT_OPERATORS_HPP_
