// ToLowerText and ToUpperText: the case of the letters of a UTF-8 text, for scripts with two cases.
#ifndef OPKIT_OPS_TEXT_LETTER_CASE_HPP_
#define OPKIT_OPS_TEXT_LETTER_CASE_HPP_

#include <cstdint>
#include <string>
#include <string_view>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A range of capital letters. A letter's small letter is `distance` behind it. With a distance of 1
// capital and small letters alternate, and `first` is a capital letter. Source: Unicode 15,
// UnicodeData.txt (Basic Latin, Latin-1, Latin Extended-A, Greek, Cyrillic, Armenian).
struct CapitalRange {
  uint32_t first, last, distance;
};
inline constexpr CapitalRange kCapitals[] = {
    {0x41, 0x5a, 32},   {0xc0, 0xd6, 32},   {0xd8, 0xde, 32},   {0x100, 0x12e, 1},
    {0x132, 0x136, 1},  {0x139, 0x147, 1},  {0x14a, 0x176, 1},  {0x179, 0x17d, 1},
    {0x386, 0x386, 38}, {0x388, 0x38a, 37}, {0x38c, 0x38c, 64}, {0x38e, 0x38f, 63},
    {0x391, 0x3a1, 32}, {0x3a3, 0x3ab, 32}, {0x400, 0x40f, 80}, {0x410, 0x42f, 32},
    {0x460, 0x480, 1},  {0x48a, 0x4be, 1},  {0x4d0, 0x52e, 1},  {0x531, 0x556, 48},
};
inline uint32_t SmallLetter(uint32_t letter) {
  for (const CapitalRange& range : kCapitals)
    if (letter >= range.first && letter <= range.last &&
        (range.distance > 1 || (letter - range.first) % 2 == 0))
      return letter + range.distance;
  return letter;
}
inline uint32_t CapitalLetter(uint32_t letter) {
  for (const CapitalRange& range : kCapitals) {
    const uint32_t capital = letter - range.distance;
    if (capital >= range.first && capital <= range.last &&
        (range.distance > 1 || (capital - range.first) % 2 == 0))
      return capital;
  }
  return letter;
}

// Changes each letter of two bytes or fewer in UTF-8 by `change`. Bytes that are no UTF-8 stay.
template <class F>
std::string ChangeLetters(std::string_view text, F change) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const unsigned char next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    const bool two_bytes = byte >= 0xc2 && byte < 0xe0 && (next & 0xc0) == 0x80;
    if (byte >= 0x80 && !two_bytes) {
      out += text[i];
      continue;
    }
    const uint32_t letter =
        change(two_bytes ? uint32_t{byte & 0x1fu} << 6 | (next & 0x3fu) : uint32_t{byte});
    if (letter < 0x80) {
      out += static_cast<char>(letter);
    } else {
      out += static_cast<char>(0xc0 | letter >> 6);
      out += static_cast<char>(0x80 | (letter & 0x3f));
    }
    i += two_bytes;
  }
  return out;
}
inline std::string ToLowerText(std::string_view text) { return ChangeLetters(text, SmallLetter); }
inline std::string ToUpperText(std::string_view text) { return ChangeLetters(text, CapitalLetter); }

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_TEXT_LETTER_CASE_HPP_
