// The definitions of opkit/base/name_table.hpp.
#ifndef OPKIT_BASE_IMPL_NAME_TABLE_IPP_
#define OPKIT_BASE_IMPL_NAME_TABLE_IPP_

#include <algorithm>

#include "opkit/base/name_table.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

OPKIT_INLINE size_t SortedRows::LowerBound(std::string_view name) const {
  const auto at = std::lower_bound(rows.begin(), rows.end(), name,
                                   [](const auto& row, std::string_view wanted) {
                                     return static_cast<const NamedRow*>(row.get())->name < wanted;
                                   });
  return static_cast<size_t>(at - rows.begin());
}

OPKIT_INLINE NamedRow* SortedRows::Find(std::string_view name) const {
  const size_t at = LowerBound(name);
  return at < rows.size() && At(at)->name == name ? At(at) : nullptr;
}

OPKIT_INLINE void SortedRows::Add(NamedRow* row) {
  const auto at = static_cast<std::ptrdiff_t>(LowerBound(row->name));
  rows.insert(rows.begin() + at, IntrusivePtr<RefCounted>(row));
}

OPKIT_INLINE bool SortedRows::Erase(std::string_view name) {
  if (!Find(name)) return false;
  const auto at = rows.begin() + static_cast<std::ptrdiff_t>(LowerBound(name));
  std::rotate(at, at + 1, rows.end());
  rows.pop_back();  // the row's destructor finds the table without it
  return true;
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_BASE_IMPL_NAME_TABLE_IPP_
