// ShapeCache: a cache of objects that are made for one set of input types and shapes: the
// specializations of a plan, the bound plans of an executor.
#ifndef OPKIT_GRAPH_PLAN_SHAPE_CACHE_HPP_
#define OPKIT_GRAPH_PLAN_SHAPE_CACHE_HPP_

#include <algorithm>

#include "opkit/op/inference.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// True if all dtypes and shapes are equal, and the same inputs read the graph's defaults, whose
// data a plan may use. Both lists have an entry for each input of the graph.
OPKIT_NOINLINE inline bool SameTypes(const std::vector<TensorInfo>& a,
                                     const std::vector<TensorInfo>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), [](const TensorInfo& x, const TensorInfo& y) {
    return x.dtype == y.dtype && x.shape == y.shape && x.element == y.element &&
           x.constant == y.constant;
  });
}

// A cache that drops the least recently used entry when it is full. `Entry` has a member inputs().
template <class Entry>
class ShapeCache {
 public:
  explicit ShapeCache(int max_entries) : max_entries_(static_cast<size_t>(max_entries)) {}

  // Returns the entry for these inputs and makes it the latest; null if there is none.
  IntrusivePtr<Entry> Find(const std::vector<TensorInfo>& inputs) {
    const auto found = std::find_if(
        entries_.begin(), entries_.end(),
        [&](const IntrusivePtr<Entry>& entry) { return SameTypes(entry->inputs(), inputs); });
    if (found == entries_.end()) return {};
    std::rotate(entries_.begin(), found, found + 1);
    return latest();
  }
  void Add(IntrusivePtr<Entry> entry) {
    entries_.insert(entries_.begin(), std::move(entry));
    if (entries_.size() > max_entries_) entries_.pop_back();
  }
  void Remove(const std::vector<TensorInfo>& inputs) {
    std::erase_if(entries_, [&](const IntrusivePtr<Entry>& entry) {
      return SameTypes(entry->inputs(), inputs);
    });
  }
  void Clear() { entries_.clear(); }
  template <class F>
  void ForEach(F f) const {
    for (const IntrusivePtr<Entry>& entry : entries_) f(*entry);
  }
  // Returns the entry that was found or added last; null if there is none.
  IntrusivePtr<Entry> latest() const {
    return entries_.empty() ? IntrusivePtr<Entry>() : entries_.front();
  }

 private:
  const size_t max_entries_;
  std::vector<IntrusivePtr<Entry>> entries_;  // the most recently used first
};

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_PLAN_SHAPE_CACHE_HPP_
