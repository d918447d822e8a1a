// The definitions of opkit/base/name_table.hpp.
#ifndef OPKIT_BASE_IMPL_NAME_TABLE_IPP_
#define OPKIT_BASE_IMPL_NAME_TABLE_IPP_

#include "opkit/base/name_table.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

OPKIT_INLINE size_t SortedRows::LowerBound(std::string_view name) const {
  size_t low = 0, high = rows.size();
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (At(middle)->name.compare(name) < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

OPKIT_INLINE NamedRow* SortedRows::Find(std::string_view name) const {
  const size_t at = LowerBound(name);
  return at < rows.size() && At(at)->name == name ? At(at) : nullptr;
}

OPKIT_INLINE void SortedRows::Add(NamedRow* row) {
  const size_t at = LowerBound(row->name);
  rows.push_back(IntrusivePtr<RefCounted>(row));
  for (size_t i = rows.size() - 1; i > at; --i) std::swap(rows[i], rows[i - 1]);
}

OPKIT_INLINE bool SortedRows::Erase(std::string_view name) {
  if (!Find(name)) return false;
  for (size_t i = LowerBound(name) + 1; i < rows.size(); ++i) std::swap(rows[i], rows[i - 1]);
  rows.pop_back();
  return true;
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_BASE_IMPL_NAME_TABLE_IPP_
