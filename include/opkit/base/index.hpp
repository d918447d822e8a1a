// Index: converts an int to the size_t that indexes a container. Values, nodes and axes are
// numbered by int, containers by size_t.
#ifndef OPKIT_BASE_INDEX_HPP_
#define OPKIT_BASE_INDEX_HPP_

#include <cstddef>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Converts `i`, which must not be negative.
template <class Integer>
constexpr size_t Index(Integer i) {
  return static_cast<size_t>(i);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_INDEX_HPP_
