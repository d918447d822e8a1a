// ForeignTensor: a host's tensor as plain data, and ForeignView, a Tensor that views it without a
// copy. The views of a ready operator (ready_operator.hpp) are made once and moved to other memory
// at each call, which allocates nothing.
#ifndef OPKIT_EXPORT_FOREIGN_TENSOR_HPP_
#define OPKIT_EXPORT_FOREIGN_TENSOR_HPP_

#include "opkit/core/dlpack.hpp"
#include "opkit/core/tensor.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A tensor of a host. The host owns the memory and the arrays, and keeps them during the call.
struct ForeignTensor {
  void* data = nullptr;  // the first element; may be null if the tensor has no elements
  DType dtype = DType::kUndefined;
  Device device;
  int rank = 0;
  const int64_t* shape = nullptr;
  const int64_t* strides = nullptr;  // in elements, also negative ones; null for row-major dense
};

// Returns the dtype with this DLPack code and number of bits; kUndefined if there is none.
constexpr DType DTypeOfDLPack(int code, int bits, int lanes) {
  if (lanes == 1)
    for (const DLPackTypeRow& row : kDLPackTypes)
      if (row.code == code && row.bits == bits) return row.dtype;
  return DType::kUndefined;
}
[[noreturn]] OPKIT_COLD void ThrowNoDType(int code, int bits, int lanes);
// Takes a struct with DLPack's members. Throws kUnsupported for a type that opkit does not have.
template <class DLTensor>
ForeignTensor FromDLTensor(const DLTensor& in) {
  const DType dtype = DTypeOfDLPack(in.dtype.code, in.dtype.bits, in.dtype.lanes);
  if (dtype == DType::kUndefined) [[unlikely]]
    ThrowNoDType(in.dtype.code, in.dtype.bits, in.dtype.lanes);
  return {in.data ? static_cast<char*>(in.data) + in.byte_offset : nullptr,
          dtype,
          {static_cast<DeviceType>(in.device.device_type), in.device.device_id},
          in.ndim,
          in.shape,
          in.strides};
}

// A Tensor over a host's memory, for an operator's input or output. Set moves the view to a host's
// tensor; it allocates only for another shape or device. If a tensor cannot be viewed, because a
// stride is negative or the address is not aligned, the view is a dense copy of the elements.
// Release ends the view. An operator that keeps a Tensor of its input past the call keeps the
// address of memory that the host may free.
class OPKIT_IMAGE_LOCAL ForeignView {
 public:
  // Throws kInvalidArgument for a negative extent or a null pointer with elements, kUnsupported for
  // a device of which the program has no allocator, if a copy is needed.
  void SetInput(const ForeignTensor& from);
  // Like SetInput. A tensor that cannot be viewed gets memory of its own, which CopyBack copies.
  void SetOutput(const ForeignTensor& to);
  const Tensor& tensor() const { return tensor_; }
  Tensor& tensor() { return tensor_; }
  // Copies `made` to the host's tensor, if it is other memory. Both have the same shape and dtype.
  void CopyBack(const Tensor& made) const;
  // True if the tensor has the memory of this view.
  bool Owns(const Tensor& tensor) const { return storage_ && tensor.storage() == storage_; }
  // Forgets the host's memory, and keeps what the next call can use again.
  void Release();

 private:
  void View(const ForeignTensor& from);

  Tensor tensor_;          // undefined dtype for an input that is left out
  Storage storage_;        // views the host's memory; null for a copy
  ForeignTensor foreign_;  // the tensor of the current call
};

// Copies the elements of a dense tensor to a host's tensor with any strides, or back. Dtypes and
// shapes are equal. Throws kUnsupported if the host cannot reach one of them.
OPKIT_IMAGE_LOCAL void CopyToForeign(const Tensor& from, const ForeignTensor& to);
OPKIT_IMAGE_LOCAL Tensor CopyOfForeign(const ForeignTensor& from);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/export/impl/foreign_tensor.ipp"
#endif

#endif  // OPKIT_EXPORT_FOREIGN_TENSOR_HPP_
