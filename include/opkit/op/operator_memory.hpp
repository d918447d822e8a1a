// The memory that an operator holds beside its blobs: tensors that replace an output when the run
// has ended, and scratch for a run.
#ifndef OPKIT_OP_OPERATOR_MEMORY_HPP_
#define OPKIT_OP_OPERATOR_MEMORY_HPP_

#include "opkit/op/workspace.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Tensors for outputs whose present tensor is also an input, which the run still reads.
class PendingOutputs {
 public:
  PendingOutputs();
  ~PendingOutputs();
  bool empty() const { return !items_; }
  // Null when the output is not replaced. The tensors stay at their addresses.
  Tensor* Find(int output);
  Tensor* Add(int output, Blob* blob, Tensor tensor);
  // Moves the tensors to their blobs.
  void Publish();
  void Clear();
  void AppendStorages(RefCountedList& out) const;

 private:
  struct Items;
  IntrusivePtr<Items> items_;
};

// What a plan sets aside for the operator, or memory of its own that grows to the largest request.
class ScratchMemory {
 public:
  void Plan(void* bytes, int64_t size, Storage owner);
  void* Take(int64_t size, Device device) {
    return size > 0 && size <= planned_bytes_ ? planned_ : TakeOwn(size, device);
  }
  void AppendStorages(RefCountedList& out) const;

 private:
  void* TakeOwn(int64_t size, Device device);

  void* planned_ = nullptr;
  int64_t planned_bytes_ = 0;
  Storage planned_owner_;
  Storage own_;
};

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/impl/operator_memory.ipp"
#endif

#endif  // OPKIT_OP_OPERATOR_MEMORY_HPP_
