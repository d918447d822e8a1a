// The definitions of opkit/base/algorithm.hpp.
#ifndef OPKIT_BASE_IMPL_ALGORITHM_IPP_
#define OPKIT_BASE_IMPL_ALGORITHM_IPP_

#include "opkit/base/algorithm.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE std::vector<int> SortedOrder(size_t count, FunctionRef<bool(int a, int b)> before) {
  std::vector<int> order(count), merged(count);
  for (size_t i = 0; i < count; ++i) order[i] = static_cast<int>(i);
  // Each run of `width` numbers is sorted already.
  for (size_t width = 1; width < count; width *= 2) {
    for (size_t begin = 0; begin < count; begin += 2 * width) {
      const size_t middle = begin + width < count ? begin + width : count;
      const size_t end = middle + width < count ? middle + width : count;
      size_t a = begin, b = middle, to = begin;
      while (a < middle && b < end)
        merged[to++] = before(order[b], order[a]) ? order[b++] : order[a++];
      while (a < middle) merged[to++] = order[a++];
      while (b < end) merged[to++] = order[b++];
    }
    order.swap(merged);
  }
  return order;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_IMPL_ALGORITHM_IPP_
