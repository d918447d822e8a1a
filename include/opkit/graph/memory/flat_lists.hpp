// FlatLists: many short lists of numbers in one array, such as the conflicts of buffers, the
// predecessors of steps, or the buffers live in each section.
#ifndef OPKIT_GRAPH_MEMORY_FLAT_LISTS_HPP_
#define OPKIT_GRAPH_MEMORY_FLAT_LISTS_HPP_

#include <cstdint>
#include <span>
#include <vector>

#include "opkit/base/index.hpp"
#include "opkit/base/indexed_vector.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// List i is items[starts[i]] up to items[starts[i + 1]].
struct FlatLists {
  IndexedVector<int64_t> starts;
  IndexedVector<int> items;

  FlatLists() = default;
  // `visit(add)` calls add(list, item) for every item, and takes the items of one list from last to
  // first. The constructor calls `visit` twice: first to count the items, then to store them.
  template <class Visit>
  FlatLists(size_t lists, Visit visit) : starts(lists + 1, 0) {
    visit([&](auto list, auto) { ++starts[list]; });
    for (size_t i = 0; i < lists; ++i) starts[i + 1] += starts[i];
    items.resize(Index(starts.back()));
    visit([&](auto list, auto item) { items[--starts[list]] = static_cast<int>(item); });
  }

  bool empty() const { return starts.empty(); }
  template <class Number>
  std::span<const int> of(Number list) const {
    return {items.data() + starts[list], items.data() + starts[list + 1]};
  }
};

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_MEMORY_FLAT_LISTS_HPP_
