// RegexFullMatch in a program without RE2.
#include "opkit/ops/text/regex_full_match.hpp"

#include <doctest/doctest.h>

#include "opkit/op/invoke.hpp"
#include "support/error_of.hpp"

namespace regex_full_match_test { namespace {

using namespace opkit;

TEST_CASE("the plain kernel names the package that the operator needs") {
  const Error error = ErrorOf([] {
    Invoke("RegexFullMatch", {Tensor::From<std::string>({1}, {"a"})}, {{"pattern", "a"}},
           {.backends = kReferenceBackend});
  });
  CHECK(Contains(error.what(), "RegexFullMatch needs RE2"));
  CHECK(Contains(error.what(), "libre2-dev"));
}

}  // namespace
}  // namespace regex_full_match_test
