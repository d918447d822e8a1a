// The type that sums of elements are computed in, and the conversion of a result to an element. For
// reference kernels that add many elements, such as matrix products and reductions.
#ifndef OPKIT_OPS_SUPPORT_ELEMENT_SUM_HPP_
#define OPKIT_OPS_SUPPORT_ELEMENT_SUM_HPP_

#include <limits>

#include "opkit/core/dtype.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Sums of integers wrap around, as the integers themselves are meant to.
template <class T>
using SumType = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                            std::type_identity<double>>::type;

template <class T>
SumType<T> ToSum(T value) {
  return static_cast<SumType<T>>(value);
}

// Rounds to a floating-point T once. An integral T gets a real number rounded towards zero, and the
// nearest value of T if it is out of range.
template <class T, class Result>
T ToElement(Result result) {
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

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OPS_SUPPORT_ELEMENT_SUM_HPP_
