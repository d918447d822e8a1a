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
  // Latin with diacritics, Greek with accents, Cyrillic, Armenian.
  for (const Pair& pair : {Pair{"AZ", "az"}, Pair{"ÀÖØÞ", "àöøþ"}, Pair{"ĀĐĹŇŻ", "āđĺňż"},
                           Pair{"ΑΩΆΈΏΫ", "αωάέώϋ"}, Pair{"АЯЁЍҐ", "аяёѝґ"}, Pair{"ԱՖ", "աֆ"}}) {
    CAPTURE(pair.capital);
    CHECK(ToLowerText(pair.capital) == pair.small);
    CHECK(ToUpperText(pair.small) == pair.capital);
    CHECK(ToLowerText(pair.small) == pair.small);
    CHECK(ToUpperText(pair.capital) == pair.capital);
  }
  for (const char* text : {"", "[`{@", "×÷ß", "中文", "😀", "\xff\xc3", "\xc3", "\xe2\x82"}) {
    CAPTURE(text);
    CHECK(ToLowerText(text) == text);
    CHECK(ToUpperText(text) == text);
  }
}

}  // namespace
}  // namespace letter_case_test
