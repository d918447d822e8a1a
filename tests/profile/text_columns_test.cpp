#include "opkit/profile/text_columns.hpp"

#include <doctest/doctest.h>

namespace text_columns_test {

using opkit::detail::AlignColumns;
using opkit::detail::Microseconds;

TEST_CASE("columns are as wide as their widest entries, texts on the left, numbers on the right") {
  CHECK(AlignColumns({{"name", "us"}, {"a", "10.5"}, {"longer", ""}}, 1) ==
        "name      us\n"
        "a       10.5\n"
        "longer\n");
}

TEST_CASE("times are microseconds with three decimals") {
  CHECK(Microseconds(1234.5) == "1.234");
  CHECK(Microseconds(0) == "0.000");
}

}  // namespace text_columns_test
