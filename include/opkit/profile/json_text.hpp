// Appends strings and numbers of JSON to a text, fast enough for files of millions of lines.
#ifndef OPKIT_PROFILE_JSON_TEXT_HPP_
#define OPKIT_PROFILE_JSON_TEXT_HPP_

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the length in bytes of the valid UTF-8 sequence (The Unicode Standard, table 3-7) with
// which `text` begins, or 0 if it begins with none.
inline size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto continues = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const unsigned first = byte(0), second = byte(1);
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

// Calls f with each UTF-8 sequence of the text, and with U+FFFD for each byte outside of a valid
// sequence.
template <class F>
void ForEachCharacter(std::string_view text, F f) {
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    f(length == 0 ? std::string_view("\xEF\xBF\xBD") : text.substr(0, length));
    text.remove_prefix(length == 0 ? 1 : length);
  }
}

// Appends `text` in quotes, escaped by the rules of RFC 8259, with U+FFFD for each byte that is not
// UTF-8.
inline void AppendJsonString(std::string& out, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  ForEachCharacter(text, [&](std::string_view character) {
    const auto first = static_cast<unsigned char>(character[0]);
    if (first == '"' || first == '\\') {
      out += '\\';
      out += character;
    } else if (first < 0x20) {
      out += "\\u00";
      out += kHex[first >> 4];
      out += kHex[first & 15];
    } else {
      out += character;
    }
  });
  out += '"';
}

template <class Integer>
void AppendInteger(std::string& out, Integer value) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

// Appends a number, or null for NaN and the infinities, which JSON cannot express.
inline void AppendNumber(std::string& out, double value) {
  char digits[32];
  if (!__builtin_isfinite(value))
    out += "null";
  else
    out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

// Appends `ns` as microseconds with three decimals.
inline void AppendMicroseconds(std::string& out, int64_t ns) {
  const uint64_t size = ns < 0 ? -static_cast<uint64_t>(ns) : static_cast<uint64_t>(ns);
  if (ns < 0) out += '-';
  AppendInteger(out, size / 1000);
  const auto rest = static_cast<int>(size % 1000);
  const char decimals[] = {'.', static_cast<char>('0' + rest / 100),
                           static_cast<char>('0' + rest / 10 % 10),
                           static_cast<char>('0' + rest % 10)};
  out.append(decimals, 4);
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_PROFILE_JSON_TEXT_HPP_
