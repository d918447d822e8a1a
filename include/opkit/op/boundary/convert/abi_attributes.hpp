// Tensors and attributes across opkit_abi.h: converts a Tensor to an opkit_tensor, Arguments to an
// array of opkit_attr, and back. Data from another image is checked member by member before it is
// read.
#ifndef OPKIT_OP_BOUNDARY_CONVERT_ABI_ATTRIBUTES_HPP_
#define OPKIT_OP_BOUNDARY_CONVERT_ABI_ATTRIBUTES_HPP_

#include "opkit/core/attribute.hpp"
#include "opkit/op/boundary/convert/abi_structs.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Limits: for the number of elements, inputs or kernels, for the bytes of a struct, and for the
// bytes of a name or other text. A larger number means that the data is damaged.
inline constexpr uint64_t kMostParts = 65535, kMostStructBytes = 65536, kMostTextBytes = 65535;

// True if the other image's array is aligned for its elements.
template <class T>
bool IsAligned(const T* array) {
  return reinterpret_cast<uintptr_t>(array) % alignof(T) == 0;
}
// True if a pointer that the other image gave is not null and is aligned. It may point to an array,
// to a struct, or to memory for a result.
template <class T>
bool IsUsable(const T* pointer) {
  return pointer && IsAligned(pointer);
}
// True if the other image's struct can be read: the pointer is valid and the size is possible.
template <class Struct>
bool IsReadable(const Struct* it, uint64_t least_bytes = kFirstBytes<Struct>) {
  return IsUsable(it) && it->size >= least_bytes && it->size <= kMostStructBytes &&
         it->size % alignof(Struct) == 0;
}
// Throws kInvalidArgument if the other image's pointer for a result is null or not aligned.
template <class T>
void RequireRoom(const T* room, const char* what) {
  if (!IsUsable(room)) Throw(ErrorCode::kInvalidArgument, what, " has no room for its answer");
}
// Copies the other image's text; null is empty. Throws kInvalidArgument for a text without an end.
std::string TextOfAbi(const char* text);

// Returns the reason why a tensor or an attribute must not be read, in words that follow its name
// ("has the rank 40"); empty if it may be read.
std::string ProblemOfView(const opkit_tensor* view);
std::string ProblemOfAttr(const opkit_attr* attr);
// Throws kInvalidArgument, with `what` in front of the reason, for a tensor that must not be read.
template <class... What>
void RequireView(const opkit_tensor* view, const What&... what) {
  if (const std::string problem = ProblemOfView(view); !problem.empty()) [[unlikely]]
    Throw(ErrorCode::kInvalidArgument, what..., problem);
}

// Throws kUnsupported, with `what` in front, for a dtype that the ABI does not have. A library that
// was built before the dtype existed would take the size of its elements for 0.
template <class... What>
void RequirePlain(DType dtype, const What&... what) {
  if (!IsPlain(dtype)) [[unlikely]]
    Throw(ErrorCode::kUnsupported, what..., " is of ", dtype,
          ", which functions and libraries do not take; cast it to a type of 8 bits or more");
}

// Returns a tensor over the memory that another image views. Returns `host` itself if the view
// still shows the whole tensor, or a part of `host`'s storage if the memory lies in that storage.
// Otherwise the other image owns the memory. Throws kInvalidArgument for a struct that is no valid
// view.
Tensor TensorOfView(const opkit_tensor& view, const Tensor* host = nullptr);

// Arguments as an array of opkit_attr; owns everything that the array points to.
class AbiAttributes : public RefCounted {
 public:
  explicit AbiAttributes(const Arguments& arguments);
  const opkit_attr* const* data() const { return pointers_.data(); }
  size_t size() const { return pointers_.size(); }

 private:
  RefCountedList items_;  // an Item for each attribute
  std::vector<const opkit_attr*> pointers_;
};
// Copies the attributes. Throws kInvalidArgument for a struct that is no valid attribute.
Arguments ArgumentsOfAbi(const opkit_attr* const* attrs, uint64_t count);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/boundary/convert/impl/abi_attributes.ipp"
#endif

#endif  // OPKIT_OP_BOUNDARY_CONVERT_ABI_ATTRIBUTES_HPP_
