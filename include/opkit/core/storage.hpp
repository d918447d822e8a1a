// Storage: reference-counted bytes of one device. Tensors view it. The last handle frees it,
// through its allocator or the deleter of foreign memory.
#ifndef OPKIT_CORE_STORAGE_HPP_
#define OPKIT_CORE_STORAGE_HPP_

#include "opkit/base/ref_counted.hpp"
#include "opkit/core/allocator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

enum class DType : uint8_t;

namespace detail {

// The memory that Storage handles share: an allocator's or foreign memory.
class StorageBlock final : public RefCounted {
 public:
  // Frees foreign memory; `context` is the pointer given to the constructor.
  using Deleter = void (*)(void* data, void* context);

  // Takes the bytes from the device's allocator. Errors: kOutOfMemory, kUnsupported.
  StorageBlock(Device device, int64_t nbytes)
      : device_(device), nbytes_(nbytes), allocator_(&GetAllocator(device.type)) {
    data_ = allocator_->Allocate(nbytes, device.index);
  }
  // Adopts foreign memory; `deleter` may be null if the caller keeps the memory alive. `objects` is
  // the dtype of the C++ objects that fill the memory, such as kString; kUndefined for plain bytes.
  StorageBlock(Device device, void* data, int64_t nbytes, Deleter deleter, void* context,
               DType objects = {})
      : device_(device),
        objects_(objects),
        data_(data),
        nbytes_(nbytes),
        deleter_(deleter),
        context_(context) {}
  OPKIT_NOINLINE ~StorageBlock() override {
    if (allocator_)
      allocator_->Deallocate(data_, nbytes_);
    else if (deleter_)
      deleter_(data_, context_);
  }

  Device device() const { return device_; }
  void* data() const { return data_; }
  int64_t nbytes() const { return nbytes_; }
  // Returns the dtype of the objects in the memory; kUndefined for plain bytes. A tensor of objects
  // views only memory with objects of its dtype, and another tensor only plain bytes.
  DType objects() const { return objects_; }
  // True for adopted memory without a deleter, which its owner keeps alive.
  bool is_foreign() const { return !allocator_ && !deleter_; }
  // Moves a view of foreign memory to other memory of the same device. No other handle may exist.
  void Rebind(void* data, int64_t nbytes) { data_ = data, nbytes_ = nbytes; }
  // True if the two blocks have no common address. Blocks of one allocator never overlap; foreign
  // memory may.
  bool IsApartFrom(const StorageBlock& other) const {
    const auto a = reinterpret_cast<uintptr_t>(data_), b = reinterpret_cast<uintptr_t>(other.data_);
    return a + static_cast<uintptr_t>(nbytes_) <= b ||
           b + static_cast<uintptr_t>(other.nbytes_) <= a;
  }

 private:
  Device device_;
  DType objects_{};
  void* data_ = nullptr;
  int64_t nbytes_;
  Allocator* allocator_ = nullptr;
  Deleter deleter_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace detail

using Storage = detail::IntrusivePtr<detail::StorageBlock>;

inline Storage AllocateStorage(Device device, int64_t nbytes) {
  return detail::MakeIntrusive<detail::StorageBlock>(device, nbytes);
}
inline Storage AdoptStorage(Device device, void* data, int64_t nbytes,
                            detail::StorageBlock::Deleter deleter = nullptr,
                            void* context = nullptr, DType objects = {}) {
  return detail::MakeIntrusive<detail::StorageBlock>(device, data, nbytes, deleter, context,
                                                     objects);
}

}}  // namespace opkit

#endif  // OPKIT_CORE_STORAGE_HPP_
