// The definitions of PendingOutputs and ScratchMemory.
#ifndef OPKIT_OP_IMPL_OPERATOR_MEMORY_IPP_
#define OPKIT_OP_IMPL_OPERATOR_MEMORY_IPP_

#include <list>

#include "opkit/op/operator_memory.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

struct PendingOutputs::Items : RefCounted {
  struct Item {
    int output;
    Blob* blob;
    Tensor tensor;
  };
  std::list<Item> list;
};
OPKIT_INLINE PendingOutputs::PendingOutputs() = default;
OPKIT_INLINE PendingOutputs::~PendingOutputs() = default;
OPKIT_INLINE Tensor* PendingOutputs::Find(int output) {
  if (!items_) return nullptr;
  for (Items::Item& item : items_->list)
    if (item.output == output) return &item.tensor;
  return nullptr;
}
OPKIT_INLINE Tensor* PendingOutputs::Add(int output, Blob* blob, Tensor tensor) {
  if (!items_) items_ = MakeIntrusive<Items>();
  items_->list.push_back({output, blob, std::move(tensor)});
  return &items_->list.back().tensor;
}
OPKIT_INLINE void PendingOutputs::Publish() {
  if (!items_) return;
  for (Items::Item& item : items_->list) *item.blob->GetMutable<Tensor>() = std::move(item.tensor);
  items_ = {};
}
OPKIT_INLINE void PendingOutputs::Clear() { items_ = {}; }
OPKIT_INLINE void PendingOutputs::AppendStorages(RefCountedList& out) const {
  if (!items_) return;
  for (const Items::Item& item : items_->list) out.push_back(item.tensor.storage());
}

OPKIT_INLINE void ScratchMemory::Plan(void* bytes, int64_t size, Storage owner) {
  planned_ = bytes;
  planned_bytes_ = size;
  planned_owner_ = std::move(owner);
}
OPKIT_INLINE void* ScratchMemory::TakeOwn(int64_t size, Device device) {
  if (size == 0) return nullptr;
  if (!own_ || own_->nbytes() < size) own_ = AllocateStorage(device, size);
  return own_->data();
}
OPKIT_INLINE void ScratchMemory::AppendStorages(RefCountedList& out) const {
  if (own_) out.push_back(own_);
  if (planned_owner_) out.push_back(planned_owner_);
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_IMPL_OPERATOR_MEMORY_IPP_
