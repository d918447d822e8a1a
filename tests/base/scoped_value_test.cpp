#include "opkit/base/scoped_value.hpp"

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>

namespace scoped_value_test { namespace {

using opkit::detail::ScopedValue;

TEST_CASE("scopes in each other restore the value before, after an exception too") {
  std::string name = "outer";
  try {
    const ScopedValue first(name, "first");
    CHECK(name == "first");
    {
      const ScopedValue second(name, "second");
      CHECK(name == "second");
    }
    CHECK(name == "first");
    throw std::runtime_error("leaves the scope");
  } catch (const std::runtime_error&) {
  }
  CHECK(name == "outer");
}

}  // namespace
}  // namespace scoped_value_test
