// RegexFullMatch with RE2.
#include "opkit/backends/re2/regex_full_match.hpp"

#include <doctest/doctest.h>

#include "opkit/op/invoke.hpp"
#include "support/error_of.hpp"

namespace re2_regex_full_match_test { namespace {

using namespace opkit;

std::vector<bool> Matches(const Tensor& x, const std::string& pattern) {
  return Invoke("RegexFullMatch", {x}, {{"pattern", pattern}})[0].ToVector<bool>();
}

TEST_CASE("whole strings match a pattern") {
  const Tensor x = Tensor::From<std::string>({2, 2}, {"www.google.com", "com", "", "a.com\n"});
  CHECK(Matches(x, R"(www\.[\w.-]+\.\bcom\b)") == std::vector<bool>{true, false, false, false});
  CHECK(Matches(x, "") == std::vector<bool>{false, false, true, false});
  CHECK(Matches(x, "com") == std::vector<bool>{false, true, false, false});
  CHECK(Matches(Tensor::From<std::string>({1}, {"\xc3\xa9"}), ".") == std::vector<bool>{true});
  CHECK(Matches(Tensor(Shape{0}, DType::kString), "a").empty());
}

TEST_CASE("a pattern that RE2 cannot read is an Error with RE2's reason") {
  const Error error = ErrorOf([] { Matches(Tensor::From<std::string>({1}, {"a"}), "(a"); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(error.message(), "the pattern '(a' is wrong: missing )"));
}

}  // namespace
}  // namespace re2_regex_full_match_test
