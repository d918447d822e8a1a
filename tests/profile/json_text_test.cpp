#include "opkit/profile/json_text.hpp"

#include <doctest/doctest.h>

namespace json_text_test { namespace {

using namespace opkit;

std::string Us(int64_t ns) {
  std::string text;
  detail::AppendMicroseconds(text, ns);
  return text;
}
std::string Quoted(std::string_view text) {
  std::string out;
  detail::AppendJsonString(out, text);
  return out;
}

TEST_CASE("times are microseconds with three decimals, before the start too") {
  CHECK(Us(0) == "0.000");
  CHECK(Us(7) == "0.007");
  CHECK(Us(1'234'050) == "1234.050");
  CHECK(Us(-1'001) == "-1.001");
  CHECK(Us(INT64_MIN) == "-9223372036854775.808");
}

TEST_CASE("text is escaped, and what is no UTF-8 is replaced byte by byte") {
  CHECK(Quoted("a\"b\\c\n\x1f") == R"("a\"b\\c\u000a\u001f")");
  CHECK(Quoted("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80") ==
        "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"");
  const std::string replaced = "\xEF\xBF\xBD";
  CHECK(Quoted("\x80") == "\"" + replaced + "\"");
  CHECK(Quoted("\xe0\x80\x80") == "\"" + replaced + replaced + replaced + "\"");  // too long a form
  CHECK(Quoted("\xc3") == "\"" + replaced + "\"");                                // cut off
}

}  // namespace
}  // namespace json_text_test
