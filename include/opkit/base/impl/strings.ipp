// The definitions of opkit/base/strings.hpp.
#ifndef OPKIT_BASE_IMPL_STRINGS_IPP_
#define OPKIT_BASE_IMPL_STRINGS_IPP_

#include <charconv>

#include "opkit/base/strings.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE void Text::AppendLiteral(std::string& out, Value part) {
  out += part.object ? static_cast<const char*>(part.object) : "(null)";
}
OPKIT_INLINE void Text::AppendString(std::string& out, Value part) {
  out += *static_cast<const std::string*>(part.object);
}
OPKIT_INLINE void Text::AppendView(std::string& out, Value part) {
  out += *static_cast<const std::string_view*>(part.object);
}
OPKIT_INLINE void Text::AppendCharacter(std::string& out, Value part) {
  out += static_cast<char>(part.integer);
}
OPKIT_INLINE void Text::AppendInt(std::string& out, Value part) {
  out += std::to_string(part.integer);
}
OPKIT_INLINE void Text::AppendUInt(std::string& out, Value part) {
  out += std::to_string(static_cast<uint64_t>(part.integer));
}
OPKIT_INLINE void Text::AppendFloat(std::string& out, Value part) {
  char buffer[32];  // std::to_chars ignores the program's locale
  out.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, part.number,
                                   std::chars_format::general, 9)
                         .ptr);
}

OPKIT_INLINE std::string Join(std::initializer_list<Text> parts) {
  std::string out;
  for (const Text& part : parts) part.AppendTo(out);
  return out;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_IMPL_STRINGS_IPP_
