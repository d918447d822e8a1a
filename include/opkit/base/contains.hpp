// Contains: whether a container has a value. A loop, since the concepts of std::ranges cost a unit
// some milliseconds for each type that it searches.
#ifndef OPKIT_BASE_CONTAINS_HPP_
#define OPKIT_BASE_CONTAINS_HPP_

#include "opkit/config.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

template <class Container, class T>
bool Contains(const Container& values, const T& value) {
  for (const auto& one : values)
    if (one == value) return true;
  return false;
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_BASE_CONTAINS_HPP_
