// The case of letters in UTF-8.
#include "opkit/ops/text/letter_case.hpp"

#include <doctest/doctest.h>

namespace letter_case_test { namespace {

using opkit::detail::ToLowerText;
using opkit::detail::ToUpperText;

TEST_CASE("letters of several scripts change their case, other characters stay") {
  struct Pair {
    const char *capital, *small;
  };
  // Latin with diacritics, Greek with accents, Cyrillic, Armenian; then Vietnamese, Romanian,
  // polytonic Greek, fullwidth letters, Georgian, numerals, circles, Glagolitic, Deseret, Adlam.
  for (const Pair& pair :
       {Pair{"AZ", "az"}, Pair{"ÀÖØÞ", "àöøþ"}, Pair{"ĀĐĹŇŻ", "āđĺňż"}, Pair{"ΑΩΆΈΏΫ", "αωάέώϋ"},
        Pair{"АЯЁЍҐ", "аяёѝґ"}, Pair{"ԱՖ", "աֆ"}, Pair{"ẠỆƠƯ", "ạệơư"}, Pair{"ȘȚ", "șț"},
        Pair{"ἈᾈΏ", "ἀᾀώ"}, Pair{"ＡＺ", "ａｚ"}, Pair{"ႠⅧⒶⰀ", "ⴀⅷⓐⰰ"}, Pair{"𐐀𞤀", "𐐨𞤢"}}) {
    CAPTURE(pair.capital);
    CHECK(ToLowerText(pair.capital) == pair.small);
    CHECK(ToUpperText(pair.small) == pair.capital);
    CHECK(ToLowerText(pair.small) == pair.small);
    CHECK(ToUpperText(pair.capital) == pair.capital);
  }
  for (const char* text : {"", "[`{@", "×÷ß", "中文", "😀", "\xff\xc3", "\xc3", "\xe2\x82",
                           "\xc1\xa1", "\xe0\x81\xa1", "\xf0\x80\x81\xa1", "\xf4\x90\x80\x80"}) {
    CAPTURE(text);
    CHECK(ToLowerText(text) == text);
    CHECK(ToUpperText(text) == text);
  }
}

TEST_CASE("letters whose mapping has one direction, and letters of other lengths") {
  using opkit::detail::ChangedLetter;
  using opkit::detail::kCapitalLetters;
  using opkit::detail::kSmallLetters;
  struct Row {
    uint32_t letter, small, capital;
  };
  for (const Row& row :
       {Row{0xb5, 0xb5, 0x39c}, Row{0xdf, 0xdf, 0xdf}, Row{0x130, 0x69, 0x130},
        Row{0x131, 0x131, 0x49}, Row{0x17f, 0x17f, 0x53}, Row{0x1c5, 0x1c6, 0x1c4},
        Row{0x23a, 0x2c65, 0x23a}, Row{0x2c65, 0x2c65, 0x23a}, Row{0x3c2, 0x3c2, 0x3a3},
        Row{0x3f4, 0x3b8, 0x3f4}, Row{0x1e9e, 0xdf, 0x1e9e}, Row{0x1f80, 0x1f80, 0x1f88},
        Row{0x212a, 0x6b, 0x212a}, Row{0xa64a, 0xa64b, 0xa64a}, Row{0x1c88, 0x1c88, 0xa64a},
        Row{0xab70, 0xab70, 0x13a0}, Row{0x13a0, 0xab70, 0x13a0}, Row{0x1e921, 0x1e943, 0x1e921},
        Row{0x10ffff, 0x10ffff, 0x10ffff}}) {
    CAPTURE(row.letter);
    CHECK(ChangedLetter(kSmallLetters, row.letter) == row.small);
    CHECK(ChangedLetter(kCapitalLetters, row.letter) == row.capital);
  }
  CHECK(ToLowerText("\u023aK\u212a") == "\u2c65kk");
  CHECK(ToUpperText("\u2c65k\u0131") == "\u023aKI");
}

TEST_CASE("the table has every letter of Unicode 14 and its ranges are in order") {
  const auto count = [](auto& ranges) {
    size_t letters = 0;
    uint32_t last = 0;
    for (const auto& range : ranges) {
      CHECK(range.first > last);
      CHECK(range.last >= range.first);
      CHECK((range.last - range.first) % range.step == 0);
      last = range.last;
      letters += (range.last - range.first) / range.step + 1;
    }
    return letters;
  };
  CHECK(count(opkit::detail::kSmallLetters) == 1433);
  CHECK(count(opkit::detail::kCapitalLetters) == 1450);
}

}  // namespace
}  // namespace letter_case_test
