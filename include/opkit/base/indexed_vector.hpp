// IndexedVector: a std::vector whose operator[] takes an int or an enumerator as it is. Nodes,
// values and steps are numbered by int, so that -1 may mean "none"; containers count in size_t.
#ifndef OPKIT_BASE_INDEXED_VECTOR_HPP_
#define OPKIT_BASE_INDEXED_VECTOR_HPP_

#include <cstddef>
#include <utility>
#include <vector>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

template <class T>
class IndexedVector : public std::vector<T> {
  using Base = std::vector<T>;

 public:
  using Base::Base;
  IndexedVector(Base values) : Base(std::move(values)) {}  // NOLINT: implicit

  // Returns the element of that number, which must not be negative.
  template <class Number>
  decltype(auto) operator[](Number i) {
    return Base::operator[](static_cast<size_t>(i));
  }
  template <class Number>
  decltype(auto) operator[](Number i) const {
    return Base::operator[](static_cast<size_t>(i));
  }
};

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_INDEXED_VECTOR_HPP_
