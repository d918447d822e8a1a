#include "opkit/profile/json_text.hpp"

#include <doctest/doctest.h>

namespace json_text_test { namespace {

using namespace opkit;

std::string Us(int64_t ns) {
  std::string text;
  detail::AppendMicroseconds(text, ns);
  return text;
}
TEST_CASE("times are microseconds with three decimals, before the start too") {
  CHECK(Us(0) == "0.000");
  CHECK(Us(7) == "0.007");
  CHECK(Us(1'234'050) == "1234.050");
  CHECK(Us(-1'001) == "-1.001");
  CHECK(Us(INT64_MIN) == "-9223372036854775.808");
}

}  // namespace
}  // namespace json_text_test
