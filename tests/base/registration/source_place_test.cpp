#include "opkit/base/registration/source_place.hpp"

#include <doctest/doctest.h>

namespace source_place_test {
using opkit::detail::SamePlace;

TEST_CASE("a header is known by its folder and name, wherever it is installed") {
  CHECK(
      SamePlace("/build/opkit/include/opkit/ops/exp.hpp", 7, "/usr/include/opkit/ops/exp.hpp", 7));
  CHECK(SamePlace("./ops/exp.h", 7, "../ops/exp.h", 7));
  CHECK_FALSE(SamePlace("/usr/include/opkit/ops/exp.hpp", 7, "/usr/include/opkit/ops/exp.hpp", 8));
  CHECK_FALSE(SamePlace("/usr/include/opkit/ops/exp.hpp", 7, "/usr/include/opkit/ops/log.hpp", 7));
  CHECK_FALSE(SamePlace("/usr/include/mine/exp.hpp", 7, "/usr/include/yours/exp.hpp", 7));
}

TEST_CASE("a source is known by its whole path") {
  CHECK(SamePlace("./a.cpp", 1, "a.cpp", 1));
  CHECK_FALSE(SamePlace("/mine/ops/exp.cpp", 7, "/yours/ops/exp.cpp", 7));
  CHECK_FALSE(SamePlace("/mine.h/exp", 7, "/yours.h/exp", 7));
}

}  // namespace source_place_test
