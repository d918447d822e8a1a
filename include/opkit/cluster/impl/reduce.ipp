// Definitions of ReduceInto and DivideElements.
#ifndef OPKIT_CLUSTER_IMPL_REDUCE_IPP_
#define OPKIT_CLUSTER_IMPL_REDUCE_IPP_

#include "opkit/base/error.hpp"
#include "opkit/cluster/reduce.hpp"
#include "opkit/ops/support/element_types.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

template <class T, class Combine>
void CombineInto(int64_t count, const void* from, void* into, Combine combine) {
  const T* a = static_cast<const T*>(from);
  T* b = static_cast<T*>(into);
  for (int64_t i = 0; i < count; ++i)
    b[i] = static_cast<T>(
        combine(static_cast<ComputeType<T>>(b[i]), static_cast<ComputeType<T>>(a[i])));
}

OPKIT_INLINE void ReduceInto(Reduction reduction, DType dtype, int64_t count, const void* from,
                             void* into) {
  const bool computed = NumericTypes::Visit(dtype, [&]<class T>() {
    // Not std::plus: small integers are added in int and wrap when stored.
    switch (reduction) {
      case Reduction::kSum:
        return CombineInto<T>(count, from, into, [](auto a, auto b) { return a + b; });
      case Reduction::kProduct:
        return CombineInto<T>(count, from, into, [](auto a, auto b) { return a * b; });
      case Reduction::kMax:
        return CombineInto<T>(count, from, into,
                              [](auto a, auto b) { return b > a || b != b ? b : a; });
      case Reduction::kMin:
        return CombineInto<T>(count, from, into,
                              [](auto a, auto b) { return b < a || b != b ? b : a; });
    }
  });
  if (!computed) Throw(ErrorCode::kTypeMismatch, "a reduction does not compute ", ToString(dtype));
}

OPKIT_INLINE void DivideElements(DType dtype, int64_t count, int64_t terms, void* elements) {
  const bool computed = FloatTypes::Visit(dtype, [&]<class T>() {
    T* data = static_cast<T*>(elements);
    for (int64_t i = 0; i < count; ++i)
      data[i] =
          static_cast<T>(static_cast<ComputeType<T>>(data[i]) / static_cast<ComputeType<T>>(terms));
  });
  if (!computed) Throw(ErrorCode::kTypeMismatch, "a mean does not compute ", ToString(dtype));
}

}}}  // namespace opkit::detail

#endif  // OPKIT_CLUSTER_IMPL_REDUCE_IPP_
