// The definitions of opkit/base/name_index.hpp.
#ifndef OPKIT_BASE_IMPL_NAME_INDEX_IPP_
#define OPKIT_BASE_IMPL_NAME_INDEX_IPP_

#include "opkit/base/index.hpp"
#include "opkit/base/name_index.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline uint32_t HashOf(std::string_view name) {
  return static_cast<uint32_t>(std::hash<std::string_view>()(name));
}

OPKIT_INLINE int NameIndex::Find(std::string_view name) const {
  if (slots_.empty()) return -1;
  return slots_[Probe(name, HashOf(name))].number;
}

OPKIT_INLINE int NameIndex::Add(std::string_view name) {
  if (names_.size() * 2 >= slots_.size()) Grow();
  const uint32_t hash = HashOf(name);
  Slot& slot = slots_[Probe(name, hash)];
  if (slot.number < 0) {
    slot = {size(), hash};
    names_.emplace_back(name);
  }
  return slot.number;
}

OPKIT_INLINE size_t NameIndex::Probe(std::string_view name, uint32_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  while (slots_[at].number >= 0 &&
         (slots_[at].hash != hash || names_[Index(slots_[at].number)] != name))
    at = (at + 1) & mask;
  return at;
}

OPKIT_INLINE void NameIndex::Grow() {
  const std::vector<Slot> old = std::move(slots_);
  slots_.assign(old.empty() ? 16 : old.size() * 2, {});
  const size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.number < 0) continue;
    size_t at = slot.hash & mask;
    while (slots_[at].number >= 0) at = (at + 1) & mask;
    slots_[at] = slot;
  }
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_IMPL_NAME_INDEX_IPP_
