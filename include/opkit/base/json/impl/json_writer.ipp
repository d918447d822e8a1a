// JsonWriter's definitions.
#ifndef OPKIT_BASE_JSON_IMPL_JSON_WRITER_IPP_
#define OPKIT_BASE_JSON_IMPL_JSON_WRITER_IPP_

#include <utility>

#include "opkit/base/json/json_writer.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto continues = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const unsigned first = byte(0), second = byte(1);
  if (text.empty()) return 0;
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return continues(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    if (!continues(1) || !continues(2)) return 0;
    return (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ? 0 : 3;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    if (!continues(1) || !continues(2) || !continues(3)) return 0;
    return (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f) ? 0 : 4;
  }
  return 0;
}

OPKIT_INLINE void AppendJsonString(std::string& out, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  size_t plain = 0;  // start of the bytes that need no escape and are not yet in `out`
  for (size_t at = 0; at < text.size();) {
    const auto first = static_cast<unsigned char>(text[at]);
    const size_t length = first < 0x80 ? 1 : Utf8Length(text.substr(at));
    if (length != 0 && first >= 0x20 && first != '"' && first != '\\') {
      at += length;
      continue;
    }
    out += text.substr(plain, at - plain);
    if (length == 0)
      out += "\xEF\xBF\xBD";
    else if (first < 0x20)
      ((out += "\\u00") += kHex[first >> 4]) += kHex[first & 15];
    else
      (out += '\\') += text[at];
    plain = ++at;
  }
  out += text.substr(plain);
  out += '"';
}

OPKIT_INLINE void AppendNumber(std::string& out, double value) {
  char digits[32];
  if (!__builtin_isfinite(value))
    out += "null";
  else
    out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

OPKIT_INLINE JsonWriter& JsonWriter::Key(std::string_view name) {
  AppendJsonString(Item(), name);
  out_ += is_spaced_ ? ": " : ":";
  needs_comma_ = false;
  return *this;
}
OPKIT_INLINE std::string& JsonWriter::Item() {
  if (std::exchange(needs_comma_, true)) out_ += is_spaced_ && !indent_ ? ", " : ",";
  AppendNewLine();
  return out_;
}
OPKIT_INLINE JsonWriter& JsonWriter::Begin(char bracket) {
  Item() += bracket;
  needs_comma_ = false;
  return *this;
}
OPKIT_INLINE JsonWriter& JsonWriter::End(char bracket) {
  AppendNewLine();
  out_ += bracket;
  needs_comma_ = true;
  return *this;
}
OPKIT_INLINE void JsonWriter::AppendNewLine() {
  if (const char* const indent = std::exchange(indent_, nullptr)) (out_ += '\n') += indent;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_JSON_IMPL_JSON_WRITER_IPP_
