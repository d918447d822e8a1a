// CUDASumType: the type in which threads add many elements of T.
#ifndef OPKIT_BACKENDS_CUDA_OPS_SUM_TYPE_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_SUM_TYPE_HPP_

#include "opkit/ops/support/element_sum.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// float for float and the 16-bit types, because a GPU has few units for double; as on the CPU for
// the other types.
template <class T>
using CUDASumType =
    std::conditional_t<std::is_integral_v<T> || std::is_same_v<T, double>, SumType<T>, float>;

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_CUDA_OPS_SUM_TYPE_HPP_
