// LargerOf, SmallerOf: maximum and minimum of two elements. NaN if an element is NaN, as in NumPy.
#ifndef OPKIT_OPS_SUPPORT_EXTREMES_HPP_
#define OPKIT_OPS_SUPPORT_EXTREMES_HPP_

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

template <class T>
OPKIT_HOST_DEVICE T LargerOf(T a, T b) {
  return a > b || a != a ? a : b;
}
template <class T>
OPKIT_HOST_DEVICE T SmallerOf(T a, T b) {
  return a < b || a != a ? a : b;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_SUPPORT_EXTREMES_HPP_
