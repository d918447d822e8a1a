#include "opkit/base/contains.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

namespace opkit {
namespace {

TEST_CASE("Contains finds a value, by the == of its elements") {
  const std::vector<std::string> names{"a", "b"};
  CHECK(detail::Contains(names, std::string_view("b")));
  CHECK(!detail::Contains(names, "c"));
  CHECK(!detail::Contains(std::vector<int>{}, 0));
}

}  // namespace
}  // namespace opkit
