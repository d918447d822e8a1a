// The definitions of opkit/base/name_index.hpp.
#ifndef OPKIT_BASE_IMPL_NAME_INDEX_IPP_
#define OPKIT_BASE_IMPL_NAME_INDEX_IPP_

#include "opkit/base/name_index.hpp"

namespace opkit::inline OPKIT_ABI {

OPKIT_INLINE int NameIndex::Find(std::string_view name) const {
  if (slots_.empty()) return -1;
  return slots_[Slot(name)];
}

OPKIT_INLINE int NameIndex::Add(std::string_view name) {
  if (names_.size() * 2 >= slots_.size()) Grow();
  int& number = slots_[Slot(name)];
  if (number < 0) {
    number = size();
    names_.emplace_back(name);
  }
  return number;
}

OPKIT_INLINE size_t NameIndex::Slot(std::string_view name) const {
  const size_t mask = slots_.size() - 1;
  size_t at = std::hash<std::string_view>()(name) & mask;
  while (slots_[at] >= 0 && names_[detail::Index(slots_[at])] != name) at = (at + 1) & mask;
  return at;
}

OPKIT_INLINE void NameIndex::Grow() {
  slots_.assign(slots_.empty() ? 16 : slots_.size() * 2, -1);
  for (int i = 0; i < size(); ++i) slots_[Slot(names_[detail::Index(i)])] = i;
}

}  // namespace opkit

#endif  // OPKIT_BASE_IMPL_NAME_INDEX_IPP_
