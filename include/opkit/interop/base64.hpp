// Base64 (RFC 4648, section 4): encodes bytes as text, for JSON files.
#ifndef OPKIT_INTEROP_BASE64_HPP_
#define OPKIT_INTEROP_BASE64_HPP_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline constexpr char kBase64Digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

inline std::string EncodeBase64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = bytes.size() - i < 3 ? bytes.size() - i : 3;
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k)
      out += k <= count ? kBase64Digits[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

// Decodes base64. Accepts only padded text without white space and with unused bits of zero, so
// that no two texts encode the same bytes. Returns nullopt for other text.
inline std::optional<std::string> DecodeBase64(std::string_view text) {
  static constexpr auto kValues = [] {
    struct Table {
      int8_t of[256];
    } table{};
    for (int8_t& value : table.of) value = -1;
    for (int8_t i = 0; i < 64; ++i) table.of[static_cast<unsigned char>(kBase64Digits[i])] = i;
    return table;
  }();
  if (text.size() % 4 != 0) return std::nullopt;
  const size_t size = text.size() / 4 * 3 - (text.ends_with("==")  ? 2
                                             : text.ends_with('=') ? 1
                                                                   : 0);
  std::string out;
  out.reserve(size);
  for (size_t i = 0; i < text.size(); i += 4) {
    const size_t count = size - out.size() < 3 ? size - out.size() : 3;  // bytes of this group
    uint32_t group = 0;
    for (size_t k = 0; k < 4; ++k) {
      const int value = k <= count ? kValues.of[static_cast<unsigned char>(text[i + k])] : 0;
      if (value < 0) return std::nullopt;
      group = group << 6 | static_cast<uint32_t>(value);
    }
    if ((group & (0xffffffu >> (8 * count))) != 0 && count < 3) return std::nullopt;
    for (size_t k = 0; k < count; ++k) out += static_cast<char>(group >> (16 - 8 * k) & 255);
  }
  return out;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_BASE64_HPP_
