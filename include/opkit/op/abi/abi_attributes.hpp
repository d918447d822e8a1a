// Tensors and attributes across opkit_abi.h: a Tensor as an opkit_tensor, Arguments as an array of
// opkit_attr, and back. What another image hands over is checked member by member before it is
// read.
#ifndef OPKIT_OP_ABI_ABI_ATTRIBUTES_HPP_
#define OPKIT_OP_ABI_ABI_ATTRIBUTES_HPP_

#include "opkit/abi/opkit_abi.h"
#include "opkit/core/attribute.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Bytes of the structs in version 1.0, which every reader may rely on. Members were added since
// where the header's sizes are larger.
inline constexpr uint64_t kAttrBytes = 88, kTensorBytes = 72, kNodeBytes = 104, kGraphBytes = 96,
                          kOpBytes = 192, kKernelBytes = 72, kLibraryBytes = 104,
                          kParameterBytes = 56, kValueBytes = 296, kConfigBytes = 64;
static_assert(sizeof(opkit_attr) >= kAttrBytes && sizeof(opkit_tensor) >= kTensorBytes &&
              sizeof(opkit_node) >= kNodeBytes && sizeof(opkit_graph) >= kGraphBytes &&
              sizeof(opkit_op) >= kOpBytes && sizeof(opkit_kernel) >= kKernelBytes &&
              sizeof(opkit_library) >= kLibraryBytes &&
              sizeof(opkit_parameter) >= kParameterBytes && sizeof(opkit_value) >= kValueBytes);
// The most elements, inputs or kernels: a larger count is taken for damage. So is a struct of more
// bytes, and a name or another text of more.
inline constexpr uint64_t kMostParts = 65535, kMostStructBytes = 65536, kMostTextBytes = 65535;

// Whether the other image's array lies as its elements must.
template <class T>
bool IsAligned(const T* array) {
  return reinterpret_cast<uintptr_t>(array) % alignof(T) == 0;
}
// Whether the other image's struct is there, lies as it must, and says a size that it can have.
template <class Struct>
bool IsReadable(const Struct* it, uint64_t least_bytes) {
  return it && IsAligned(it) && it->size >= least_bytes && it->size <= kMostStructBytes &&
         it->size % alignof(Struct) == 0;
}
// Error (kInvalidArgument) where the other image gives no room for an answer, or none that lies as
// it must.
template <class T>
void RequireRoom(const T* room, const char* what) {
  if (!room || !IsAligned(room))
    Throw(ErrorCode::kInvalidArgument, what, " has no room for its answer");
}
// The other image's text; null is an empty one. Error (kInvalidArgument) where it does not end.
std::string TextOfAbi(const char* text);

// The reason why a tensor or an attribute must not be read, to follow its name ("has the rank 40");
// empty where it may be read.
std::string ProblemOfView(const opkit_tensor* view);
std::string ProblemOfAttr(const opkit_attr* attr);

// A tensor over the memory that another image views: `host` itself where the view still shows all
// of it, a part of `host`'s storage where it lies in there, else memory that the other image owns.
// Error (kInvalidArgument) for a struct that is no view.
Tensor TensorOfView(const opkit_tensor& view, const Tensor* host = nullptr);

// Holds all that the array points to.
class AbiAttributes : public RefCounted {
 public:
  explicit AbiAttributes(const Arguments& arguments);
  const opkit_attr* const* data() const { return pointers_.data(); }
  size_t size() const { return pointers_.size(); }

 private:
  RefCountedList items_;  // an Item for each attribute
  std::vector<const opkit_attr*> pointers_;
};
// Copies everything. Error (kInvalidArgument) for a struct that is no attribute.
Arguments ArgumentsOfAbi(const opkit_attr* const* attrs, uint64_t count);

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/abi/impl/abi_attributes.ipp"
#endif

#endif  // OPKIT_OP_ABI_ABI_ATTRIBUTES_HPP_
