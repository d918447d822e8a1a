// AttrMap: an operator's attributes as text, the form that function operators read; typed access
// parses the text. Made once when the operator is built.
#ifndef OPKIT_OP_FUNCTION_ATTR_MAP_HPP_
#define OPKIT_OP_FUNCTION_ATTR_MAP_HPP_

#include <charconv>
#include <optional>

#include "opkit/abi/opkit_abi.h"
#include "opkit/base/ref_counted.hpp"
#include "opkit/core/attribute.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The argument of a backward node that names the blob with its forward operator's state.
inline constexpr std::string_view kStateArgument = "__state";

// The address of kTypeTag<T> identifies T, the same in every translation unit.
template <class T>
inline constexpr char kTypeTag = 0;

// A map from strings to strings: std::map, std::unordered_map and others.
template <class T>
concept StringMap = requires(T& map, const std::string& text) {
  requires std::is_same_v<typename T::key_type, std::string>;
  requires std::is_same_v<typename T::mapped_type, std::string>;
  map.emplace(text, text);
};

template <class Number>
std::string NumberText(Number value) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}
// Returns the shortest text that reads back as the same number; as the same float if the value is a
// float.
inline std::string FloatText(double value) {
  const auto narrow = static_cast<float>(value);
  return static_cast<double>(narrow) == value ? NumberText(narrow) : NumberText(value);
}

// Returns the attribute as text: 3, 0.1, true, text, [1, 2], ["a", "b"]. Floating-point numbers
// lose nothing, unlike in messages.
inline std::string AttributeText(const Attribute& attribute) {
  const Attribute::Values& values = attribute.values();
  if (attribute.type() == AttributeType::kString) return values.strings[0];
  if (values.floats.empty()) return ToString(attribute);
  std::string out;
  for (double value : values.floats) out += (out.empty() ? "" : ", ") + FloatText(value);
  return attribute.is_list() ? "[" + out + "]" : out;
}

// Returns the text without the spaces around it.
inline std::string_view WithoutSpaces(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}
template <class T>
std::optional<T> ParseText(std::string_view text) {
  text = WithoutSpaces(text);
  if constexpr (std::is_same_v<T, std::string>) {
    if (text.size() >= 2 && text.front() == '"' && text.back() == '"')
      text = text.substr(1, text.size() - 2);
    return std::string(text);
  } else if constexpr (std::is_same_v<T, bool>) {
    if (text == "true" || text == "True" || text == "1") return true;
    if (text == "false" || text == "False" || text == "0") return false;
    return std::nullopt;
  } else {  // does not depend on the program's locale
    static_assert(std::is_arithmetic_v<T>,
                  "AttrMap::Get<T>: T is an integer, bool, floating-point "
                  "number, std::string, or a std::vector of one of these");
    if (text.size() > 1 && text.front() == '+' && text[1] != '-') text.remove_prefix(1);
    T value{};
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size())
      return std::nullopt;
    return value;
  }
}

// Reads a list: "[1, 2]", "(1, 2)" or "1, 2".
template <class T>
std::optional<std::vector<T>> ParseList(std::string_view text) {
  text = WithoutSpaces(text);
  if (text.size() >= 2 &&
      ((text.front() == '[' && text.back() == ']') || (text.front() == '(' && text.back() == ')')))
    text = text.substr(1, text.size() - 2);
  std::vector<T> out;
  while (!text.empty()) {
    size_t end = 0;
    for (bool quoted = false; end < text.size() && (quoted || text[end] != ','); ++end)
      quoted ^= text[end] == '"';
    auto item = ParseText<T>(text.substr(0, end));
    if (!item) return std::nullopt;
    out.push_back(*std::move(item));
    text = end < text.size() ? text.substr(end + 1) : std::string_view();
  }
  return out;
}

}  // namespace detail

// An operator's attributes as text, made once when the operator is built. Excludes the toolkit's
// own attribute kStateArgument. Reading a number parses its text.
class AttrMap {
 public:
  AttrMap() = default;
  AttrMap(AttrMap&&) noexcept = default;
  AttrMap& operator=(AttrMap&&) noexcept = default;
  explicit AttrMap(const Arguments& arguments) {
    for (const detail::NamedAttribute& item : arguments)
      if (item.name != detail::kStateArgument)
        items_.emplace_back(item.name, detail::AttributeText(item.value));
  }
  explicit AttrMap(const opkit_node& node) {
    for (uint64_t i = 0; i < node.num_attrs; ++i)
      if (const std::string_view name = node.attrs[i]->name; name != detail::kStateArgument)
        items_.emplace_back(name, node.attrs[i]->text);
  }

  // Adds the default of a declared attribute that the node does not give.
  void AddDefault(const std::string& name, const Attribute& value) {
    if (!Has(name)) items_.emplace_back(name, detail::AttributeText(value));
  }

  // Returns the text of the attribute; null if there is none.
  const std::string* Find(std::string_view name) const {
    for (const auto& [key, text] : items_)
      if (key == name) return &text;
    return nullptr;
  }
  bool Has(std::string_view name) const { return Find(name); }
  // Returns the attribute as T, `fallback` if there is none. Throws kTypeMismatch for text that
  // does not read as T.
  template <class T>
  T Get(std::string_view name, T fallback) const {
    const std::string* text = Find(name);
    return text ? Parse<T>(name, *text) : std::move(fallback);
  }
  // Returns the attribute as T. Throws kNotFound if there is none.
  template <class T>
  T Get(std::string_view name) const {
    const std::string* text = Find(name);
    if (!text) Missing(name);
    return Parse<T>(name, *text);
  }
  std::string Get(std::string_view name, const char* fallback) const {
    return Get<std::string>(name, fallback);
  }
  size_t size() const { return items_.size(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

  // Returns the attributes as any map of strings; made at the first call for each type and kept.
  template <detail::StringMap Map>
  const Map& As() const {
    using Copy = detail::Shared<Map>;
    for (const auto& [tag, copy] : copies_)
      if (tag == &detail::kTypeTag<Map>) return static_cast<const Copy&>(*copy).value;
    auto copy = detail::MakeIntrusive<Copy>(Map());
    for (const auto& [name, text] : items_) copy->value.emplace(name, text);
    copies_.emplace_back(&detail::kTypeTag<Map>, copy);
    return copy->value;
  }

 private:
  [[noreturn]] OPKIT_COLD void Missing(std::string_view name) const {
    std::vector<std::string> known;
    for (const auto& item : items_) known.push_back(item.first);
    Throw(ErrorCode::kNotFound, "no attribute '", name, "'", SuggestName(name, known));
  }
  template <class T>
  static T Parse(std::string_view name, const std::string& text) {
    std::optional<T> value;
    if constexpr (std::is_same_v<T, std::string>)
      value = text;
    else if constexpr (requires { typename T::value_type; })
      value = detail::ParseList<typename T::value_type>(text);
    else
      value = detail::ParseText<T>(text);
    if (!value)
      Throw(ErrorCode::kTypeMismatch, "attribute '", name, "' is \"", text,
            "\", which does not read as ", kAttributeTypeOf<T>);
    return *std::move(value);
  }

  std::vector<std::pair<std::string, std::string>> items_;
  mutable std::vector<std::pair<const char*, detail::IntrusivePtr<detail::RefCounted>>> copies_;
};

}}  // namespace opkit

#endif  // OPKIT_OP_FUNCTION_ATTR_MAP_HPP_
