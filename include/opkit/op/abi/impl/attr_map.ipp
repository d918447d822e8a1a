// Attributes as text, and the AttrMap that is made of them.
#ifndef OPKIT_OP_ABI_IMPL_ATTR_MAP_IPP_
#define OPKIT_OP_ABI_IMPL_ATTR_MAP_IPP_

#include "opkit/op/abi/attr_map.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

template <class Number>
std::string NumberText(Number value) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}
// The shortest text that reads back as the same number; as the same float for a value that is one.
inline std::string FloatText(double value) {
  const auto narrow = static_cast<float>(value);
  return static_cast<double>(narrow) == value ? NumberText(narrow) : NumberText(value);
}

OPKIT_INLINE std::string AttributeText(const Attribute& attribute) {
  const Attribute::Values& values = attribute.values();
  if (attribute.type() == AttributeType::kString) return values.strings[0];
  if (values.floats.empty()) return ToString(attribute);
  std::string out;
  for (double value : values.floats) out += (out.empty() ? "" : ", ") + FloatText(value);
  return attribute.is_list() ? "[" + out + "]" : out;
}

}  // namespace detail

OPKIT_INLINE AttrMap::AttrMap(const Arguments& arguments) {
  for (const NamedAttribute& item : arguments)
    if (!item.name.starts_with("__"))
      items_.emplace_back(item.name, detail::AttributeText(item.value));
}
OPKIT_INLINE AttrMap::AttrMap(const opkit_node& node) {
  for (uint64_t i = 0; i < node.num_attrs; ++i)
    if (const std::string_view name = node.attrs[i]->name; !name.starts_with("__"))
      items_.emplace_back(name, node.attrs[i]->text);
}

OPKIT_INLINE void AttrMap::Missing(std::string_view name) const {
  std::vector<std::string> known;
  for (const auto& item : items_) known.push_back(item.first);
  Throw(ErrorCode::kNotFound, "no attribute '", name, "'", SuggestName(name, known));
}

}  // namespace opkit

#endif  // OPKIT_OP_ABI_IMPL_ATTR_MAP_IPP_
