// ForeignTensor: a host's tensor as plain data, and the functions that view it as a Tensor without
// a copy. A ready operator (ready_operator.hpp) keeps its views and moves them to other memory at
// each call, which allocates nothing.
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

  // True if the elements are row-major without gaps. Strides of axes of extent 1 do not matter.
  bool is_dense() const {
    if (!strides) return true;
    int64_t expected = 1;
    for (int axis = rank - 1; axis >= 0; --axis) {
      if (shape[axis] != 1 && strides[axis] != expected) return HasNoElements();
      expected *= shape[axis];
    }
    return true;
  }
  bool HasNoElements() const {
    for (int axis = 0; axis < rank; ++axis)
      if (shape[axis] == 0) return true;
    return false;
  }
};

[[noreturn]] OPKIT_COLD OPKIT_IMAGE_LOCAL void ThrowNoDType(int code, int bits, int lanes);
// Returns the dtype with this DLPack code and number of bits. Throws kUnsupported if there is none.
inline DType DTypeOfDLPack(int code, int bits, int lanes) {
  if (lanes == 1) [[likely]]
    for (const DLPackTypeRow& row : kDLPackTypes)
      if (row.code == code && row.bits == bits) return row.dtype;
  ThrowNoDType(code, bits, lanes);
}
// Takes a struct with DLPack's members. Throws the error of DTypeOfDLPack.
template <class DLTensor>
ForeignTensor FromDLTensor(const DLTensor& in) {
  return {in.data ? static_cast<char*>(in.data) + in.byte_offset : nullptr,
          DTypeOfDLPack(in.dtype.code, in.dtype.bits, in.dtype.lanes),
          {static_cast<DeviceType>(in.device.device_type), in.device.device_id},
          in.ndim,
          in.shape,
          in.strides};
}

// Makes `view` a view of the host's tensor. If `view` is an earlier view of the same dtype, shape
// and device that nothing else shares, it only moves, without an allocation. Throws
// kInvalidArgument for a negative extent, or a null pointer with elements; kOutOfRange for more
// bytes than fit in 64 bits. A tensor that cannot be viewed, because a stride is negative or the
// address is not aligned, becomes a dense copy.
OPKIT_IMAGE_LOCAL void ViewForeign(const ForeignTensor& from, Tensor& view);
// Like ViewForeign, for a tensor to be written. Returns false, and leaves `view` without a dtype,
// if an operator cannot write to this memory: strides leave gaps, or the address is not aligned.
// The result is then copied by CopyToForeign.
OPKIT_IMAGE_LOCAL bool ViewForeignOutput(const ForeignTensor& to, Tensor& view);
// Ends a view: forgets the host's memory, and keeps what ViewForeign can use again. If an operator
// keeps the tensor past the call, `view` loses it.
OPKIT_IMAGE_LOCAL void EndView(Tensor& view) noexcept;

// Copies the elements of a dense tensor to a host's tensor of the same dtype and shape, with any
// strides. Throws kUnsupported if they are on devices between which nothing copies, or if the host
// cannot reach a tensor with strides.
OPKIT_IMAGE_LOCAL void CopyToForeign(const Tensor& from, const ForeignTensor& to);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/export/impl/foreign_tensor.ipp"
#endif

#endif  // OPKIT_EXPORT_FOREIGN_TENSOR_HPP_
