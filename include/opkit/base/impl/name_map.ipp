// The definitions of opkit/base/name_map.hpp.
#ifndef OPKIT_BASE_IMPL_NAME_MAP_IPP_
#define OPKIT_BASE_IMPL_NAME_MAP_IPP_

#include "opkit/base/name_map.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE size_t LowerRow(const NamedRows& rows, std::string_view name) {
  size_t low = 0, high = rows.size();
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (std::string_view(rows[middle]->name).compare(name) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}
OPKIT_INLINE NamedRow* FindRow(const NamedRows& rows, std::string_view name) {
  const size_t at = LowerRow(rows, name);
  return IsRow(rows, at, name) ? rows[at] : nullptr;
}
OPKIT_INLINE void GrowRows(NamedRows& rows) {
  if (rows.size() == rows.capacity()) rows.reserve(rows.empty() ? 8 : 2 * rows.size());
}
OPKIT_INLINE void InsertRow(NamedRows& rows, size_t at, NamedRow* row) {
  rows.insert(rows.begin() + static_cast<std::ptrdiff_t>(at), row);
}
OPKIT_INLINE void EraseRow(NamedRows& rows, size_t at) {
  rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(at));
}
OPKIT_INLINE std::vector<std::string> NamesOf(const NamedRows& rows) {
  std::vector<std::string> names;
  for (const NamedRow* row : rows) names.push_back(row->name);
  return names;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_IMPL_NAME_MAP_IPP_
