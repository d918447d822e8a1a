// Searching and stable sorting of vectors, for code off the hot paths; they compile fast. std::sort
// and std::stable_sort are compiled again for every item type and comparison, about 3 KB each; the
// sort here is compiled once. The concepts of std::ranges cost a unit some milliseconds for every
// searched type.
#ifndef OPKIT_BASE_ALGORITHM_HPP_
#define OPKIT_BASE_ALGORITHM_HPP_

#include <utility>
#include <vector>

#include "opkit/base/function_ref.hpp"
#include "opkit/base/index.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// True if the container holds the value.
template <class Container, class T>
bool Contains(const Container& values, const T& value) {
  for (const auto& one : values)
    if (one == value) return true;
  return false;
}

// Returns the numbers 0 to count - 1, sorted by before(a, b); equal ones keep their order. A merge
// sort: about count * log2(count) indirect calls, and scratch memory for `count` numbers.
std::vector<int> SortedOrder(size_t count, FunctionRef<bool(int a, int b)> before);

// Sorts the items by before(item, other); equal items keep their order. Moves each item at most
// twice.
template <class T, class Before>
void StableSort(std::vector<T>& items, Before before) {
  std::vector<int> order = SortedOrder(items.size(), [&](int a, int b) {
    return before(std::as_const(items[Index(a)]), std::as_const(items[Index(b)]));
  });
  for (size_t first = 0; first < order.size(); ++first) {
    if (Index(order[first]) == first) continue;
    T held = std::move(items[first]);
    size_t hole = first;
    for (size_t next; (next = Index(order[hole])) != first; hole = next) {
      items[hole] = std::move(items[next]);
      order[hole] = static_cast<int>(hole);
    }
    items[hole] = std::move(held);
    order[hole] = static_cast<int>(hole);
  }
}

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/base/impl/algorithm.ipp"
#endif

#endif  // OPKIT_BASE_ALGORITHM_HPP_
