#include "opkit/base/fixed_name.hpp"

#include <doctest/doctest.h>

#include <type_traits>

namespace fixed_name_test { namespace {

using opkit::detail::FixedName;

template <FixedName>
struct Tagged {};

TEST_CASE("a name reads back as it was written, from 1 to 31 characters") {
  CHECK(FixedName("x").str() == "x");
  CHECK(FixedName("12345678").str() == "12345678");
  CHECK(FixedName("123456789").str() == "123456789");
  CHECK(FixedName("abcdefghijklmnopqrstuvwxyz01234").str() == "abcdefghijklmnopqrstuvwxyz01234");
  CHECK(FixedName("größe…").str() == "größe…");
}

TEST_CASE("names are equal when all their characters are") {
  CHECK(FixedName("alpha") == FixedName("alpha"));
  CHECK_FALSE(FixedName("alpha") == FixedName("alphb"));
  CHECK_FALSE(FixedName("alpha") == FixedName("alpha2"));
  CHECK_FALSE(FixedName("abcdefghijklmnopqrstuvwxyz01234") ==
              FixedName("abcdefghijklmnopqrstuvwxyz01235"));
}

TEST_CASE("as template arguments, equal names make one type and others do not") {
  CHECK(std::is_same_v<Tagged<"x">, Tagged<"x">>);
  CHECK_FALSE(std::is_same_v<Tagged<"x">, Tagged<"y">>);
}

}  // namespace
}  // namespace fixed_name_test
