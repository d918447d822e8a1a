// SumType: the type in which sums of elements are computed; ElementOfSum converts a result to an
// element. Used by reference kernels that add many elements, such as matrix products and
// reductions.
#ifndef OPKIT_OPS_SUPPORT_ELEMENT_SUM_HPP_
#define OPKIT_OPS_SUPPORT_ELEMENT_SUM_HPP_

#include <limits>

#include "opkit/core/dtype.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Real for floating-point T; the unsigned type of the same size for integers, whose sums wrap
// around like the integers themselves.
template <class T, class Real = double>
using SumType = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                            std::type_identity<Real>>::type;

// Converts a result to T. To a floating-point T it is rounded, except that a double for a 16-bit
// type is rounded to float first. A real number for an integral T is rounded towards zero and
// clamped to the range of T.
template <class T, class Result>
OPKIT_HOST_DEVICE T ElementOfSum(Result result) {
  if constexpr (std::is_integral_v<T> && std::is_same_v<Result, double>) {
    using Limits = std::numeric_limits<T>;
    if (result >= static_cast<double>((Limits::max)())) return (Limits::max)();
    if (!(result > static_cast<double>((Limits::min)()))) return (Limits::min)();
    return static_cast<T>(result);
  } else if constexpr (sizeof(T) < sizeof(float) && std::is_same_v<Result, double>) {
    return static_cast<T>(static_cast<float>(result));
  } else {
    return static_cast<T>(result);
  }
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_SUPPORT_ELEMENT_SUM_HPP_
