// JsonLineReader's definitions.
#ifndef OPKIT_BASE_JSON_IMPL_JSON_LINE_READER_IPP_
#define OPKIT_BASE_JSON_IMPL_JSON_LINE_READER_IPP_

#include <charconv>

#include "opkit/base/json/json_line_reader.hpp"
#include "opkit/base/json/json_writer.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Reads the four digits of \uXXXX at `at`; returns -1 for other text.
inline int HexDigits(std::string_view text, size_t at) {
  int value = 0;
  for (size_t end = at + 4; at < end; ++at) {
    const char c = at < text.size() ? text[at] : '?';
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}
inline void AppendUtf8(std::string& out, int code) {
  const auto byte = [&](int bits) { out += static_cast<char>(bits); };
  const auto continuation = [&](int shift) { byte(0x80 | ((code >> shift) & 0x3f)); };
  if (code < 0x80) return byte(code);
  if (code < 0x800) return byte(0xc0 | (code >> 6)), continuation(0);
  if (code < 0x10000) return byte(0xe0 | (code >> 12)), continuation(6), continuation(0);
  byte(0xf0 | (code >> 18)), continuation(12), continuation(6), continuation(0);
}
// Reads the escape behind a backslash at `at` and returns its length; 0 for what is none.
inline size_t ReadEscape(std::string_view text, size_t at, std::string& out) {
  constexpr std::string_view kNames = "\"\\/bfnrt", kValues = "\"\\/\b\f\n\r\t";
  if (at >= text.size()) return 0;
  if (const size_t name = kNames.find(text[at]); name != kNames.npos) {
    out += kValues[name];
    return 1;
  }
  if (text[at] != 'u') return 0;
  const int first = HexDigits(text, at + 1);
  if (first < 0 || (first & 0xfc00) == 0xdc00) return 0;
  if ((first & 0xfc00) != 0xd800) {
    AppendUtf8(out, first);
    return 5;
  }
  const int second = text.substr(at + 5).starts_with("\\u") ? HexDigits(text, at + 7) : -1;
  if (second < 0 || (second & 0xfc00) != 0xdc00) return 0;
  AppendUtf8(out, 0x10000 + ((first & 0x3ff) << 10) + (second & 0x3ff));
  return 11;
}

OPKIT_INLINE bool JsonLineReader::ReadString(std::string* value) {
  if (!rest_.starts_with('"')) return false;
  std::string found;
  size_t plain = 1;  // start of the bytes that are not yet in `found`
  for (size_t at = 1; at < rest_.size();) {
    const auto first = static_cast<unsigned char>(rest_[at]);
    if (first == '"') {
      found += rest_.substr(plain, at - plain);
      value->swap(found);
      rest_.remove_prefix(at + 1);
      return true;
    }
    if (first < 0x20) return false;
    if (first == '\\') {
      found += rest_.substr(plain, at - plain);
      const size_t length = ReadEscape(rest_, at + 1, found);
      if (length == 0) return false;
      plain = at += 1 + length;
    } else {
      const size_t length = first < 0x80 ? 1 : Utf8Length(rest_.substr(at));
      if (length == 0) return false;
      at += length;
    }
  }
  return false;
}

// Returns the number of bytes of a number by the grammar of JSON, which std::from_chars exceeds; 0
// if the text begins with none. An integer has no fraction and no exponent.
inline size_t NumberLength(std::string_view text, bool is_integer) {
  size_t at = text.starts_with('-') ? 1 : 0;
  const auto digits = [&] {
    const size_t begin = at;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') ++at;
    return at > begin;
  };
  const bool is_zero = text.substr(at).starts_with('0');
  if (is_zero) ++at;
  if (!is_zero && !digits()) return 0;
  if (is_integer) return at;
  if (text.substr(at).starts_with('.') && (++at, !digits())) return 0;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    if (!digits()) return 0;
  }
  return at;
}
template <class Number>
bool ReadJsonNumber(std::string_view& rest, size_t length, Number* value) {
  Number found{};
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + length, found);
  if (error != std::errc() || length == 0 || end != rest.data() + length) return false;
  *value = found;
  rest.remove_prefix(length);
  return true;
}
OPKIT_INLINE bool JsonLineReader::ReadNumber(double* value) {
  return ReadJsonNumber(rest_, NumberLength(rest_, false), value);
}
OPKIT_INLINE bool JsonLineReader::ReadInteger(int64_t* value) {
  return ReadJsonNumber(rest_, NumberLength(rest_, true), value);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_JSON_IMPL_JSON_LINE_READER_IPP_
