// What another image hands over through opkit_abi.h, read without trusting it: views of tensors and
// attributes.
#ifndef OPKIT_OP_ABI_ABI_CHECK_HPP_
#define OPKIT_OP_ABI_ABI_CHECK_HPP_

#include "opkit/abi/opkit_abi.h"
#include "opkit/base/error.hpp"
#include "opkit/core/dtype.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Bytes of the structs in version 1.0: what every reader may rely on. Members were added since
// where the header's sizes are larger.
inline constexpr uint64_t kAttrBytes = 88, kTensorBytes = 72, kNodeBytes = 104, kGraphBytes = 96;
static_assert(sizeof(opkit_attr) >= kAttrBytes && sizeof(opkit_tensor) >= kTensorBytes &&
              sizeof(opkit_node) >= kNodeBytes && sizeof(opkit_graph) >= kGraphBytes);
// Elements, inputs, kernels: more are taken for damage.
inline constexpr uint64_t kMostParts = 65535;

// Bytes from the first element of a view to the end of the last; false where they cannot be
// counted.
template <class View>
bool CountBytes(const View& view, int64_t* bytes) {
  int64_t last = 0, step = 0;
  for (int i = 0; i < view.rank; ++i)
    if (view.shape[i] > 0 && (__builtin_mul_overflow(view.shape[i] - 1, view.strides[i], &step) ||
                              __builtin_add_overflow(last, step, &last)))
      return false;
  return !__builtin_add_overflow(last, 1, &last) &&
         !__builtin_mul_overflow(last, ItemSize(static_cast<DType>(view.dtype)), bytes);
}

// Why it must not be read, to follow its name; empty where it may. Templates, so that programs
// without function operators do not compile them.
template <class View>
std::string ProblemOfView(const View* view) {
  if (!view) return "is null";
  if (view->size < kTensorBytes) return "is shorter than version 1.0's";
  if (view->dtype <= 0 || view->dtype >= kNumDTypes)
    return StrCat("has the dtype ", view->dtype, ", which does not exist");
  if (view->rank < 0 || view->rank > OPKIT_MAX_RANK) return StrCat("has the rank ", view->rank);
  if (view->device_type <= 0)
    return StrCat("is on a device of the type ", view->device_type, ", which does not exist");
  if (view->rank > 0 && (!view->shape || !view->strides)) return "has no shape or no strides";
  bool is_empty = false;
  for (int i = 0; i < view->rank; ++i) {
    if (view->shape[i] < 0) return StrCat("has the extent ", view->shape[i], " on axis ", i);
    is_empty |= view->shape[i] == 0;
  }
  int64_t bytes = 0;
  if (!CountBytes(*view, &bytes)) return "reaches further than 64 bits can count";
  return view->data || is_empty ? "" : "has no memory";
}
template <class Attr>
std::string ProblemOfAttr(const Attr* attr) {
  if (!attr) return "is null";
  if (attr->size < kAttrBytes) return "is shorter than version 1.0's";
  if (attr->type < 0 || attr->type > OPKIT_ATTR_TENSORS)
    return StrCat("has the type ", attr->type, ", which does not exist");
  if (!attr->name) return "has no name";
  if (attr->count > kMostParts) return StrCat("has ", attr->count, " elements");
  if (attr->type < OPKIT_ATTR_INTS && attr->count != 1)
    return StrCat("has ", attr->count, " elements and is no list");
  const int type = attr->type % 5;
  const bool is_tensor = type == OPKIT_ATTR_TENSOR, is_text = type == OPKIT_ATTR_STRING;
  const void* elements = is_tensor                  ? static_cast<const void*>(attr->tensors)
                         : is_text                  ? static_cast<const void*>(attr->strings)
                         : type == OPKIT_ATTR_FLOAT ? static_cast<const void*>(attr->floats)
                                                    : static_cast<const void*>(attr->ints);
  if (attr->count > 0 && (!elements || (is_text && !attr->string_sizes)))
    return "has elements that are null";
  for (uint64_t i = 0; i < attr->count; ++i) {
    if (is_text && !attr->strings[i]) return "has a null string";
    if (!is_tensor) continue;
    if (const std::string problem = ProblemOfView(attr->tensors[i]); !problem.empty())
      return StrCat("has a tensor that ", problem);
    if (attr->tensors[i]->device_type != OPKIT_CPU) return "has a tensor that is not on the CPU";
  }
  return "";
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_ABI_ABI_CHECK_HPP_
