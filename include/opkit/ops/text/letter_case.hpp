// ToLowerText and ToUpperText: the case of the letters of a UTF-8 text, by Unicode's simple case
// mapping, which makes one letter of one letter: the letter ß stays.
#ifndef OPKIT_OPS_TEXT_LETTER_CASE_HPP_
#define OPKIT_OPS_TEXT_LETTER_CASE_HPP_

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "opkit/ops/text/letter_case_table.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the letter of the other case; `letter` itself if no range has it.
inline uint32_t ChangedLetter(std::span<const LetterRange> ranges, uint32_t letter) {
  const auto range = std::lower_bound(
      ranges.begin(), ranges.end(), letter,
      [](const LetterRange& found, uint32_t sought) { return found.last < sought; });
  if (range == ranges.end() || letter < range->first || (letter - range->first) % range->step != 0)
    return letter;
  return letter + static_cast<uint32_t>(range->delta);
}

// Returns the number of bytes of the UTF-8 character at the begin of `text`, and sets `letter`.
// Returns 0 for bytes that are no UTF-8.
inline size_t ReadLetter(std::string_view text, uint32_t& letter) {
  const auto byte = static_cast<unsigned char>(text[0]);
  const size_t size = byte < 0x80   ? 1
                      : byte < 0xc2 ? 0
                      : byte < 0xe0 ? 2
                      : byte < 0xf0 ? 3
                      : byte < 0xf5 ? 4
                                    : 0;
  if (size == 0 || size > text.size()) return 0;
  letter = size == 1 ? byte : byte & (0x7fu >> size);
  for (size_t i = 1; i < size; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xc0) != 0x80) return 0;
    letter = letter << 6 | (next & 0x3fu);
  }
  const bool is_long = letter < (size == 3 ? 0x800u : size == 4 ? 0x10000u : 0u);
  return is_long || letter > 0x10ffff ? 0 : size;
}
inline void AddLetter(uint32_t letter, std::string& text) {
  const int rest = letter < 0x80 ? 0 : letter < 0x800 ? 1 : letter < 0x10000 ? 2 : 3;
  constexpr uint32_t kFirst[] = {0, 0xc0, 0xe0, 0xf0};
  text += static_cast<char>(kFirst[rest] | letter >> 6 * rest);
  for (int i = rest - 1; i >= 0; --i) text += static_cast<char>(0x80 | (letter >> 6 * i & 0x3f));
}

// Changes the case of each letter. Bytes that are no UTF-8 stay.
inline std::string ChangeLetters(std::string_view text, std::span<const LetterRange> ranges) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    uint32_t letter = 0;
    const size_t size = ReadLetter(text.substr(i), letter);
    if (size == 0)
      out += text[i];
    else
      AddLetter(ChangedLetter(ranges, letter), out);
    i += (std::max)(size, size_t{1});
  }
  return out;
}
inline std::string ToLowerText(std::string_view text) { return ChangeLetters(text, kSmallLetters); }
inline std::string ToUpperText(std::string_view text) {
  return ChangeLetters(text, kCapitalLetters);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_TEXT_LETTER_CASE_HPP_
