// StringNormalizer, and the case of letters.
#include "opkit/ops/text/string_normalizer.hpp"

#include <doctest/doctest.h>

#include "opkit/op/invoke.hpp"
#include "support/error_of.hpp"

namespace string_normalizer_test { namespace {

using namespace opkit;
using Strings = std::vector<std::string>;

Tensor Run(const Shape& shape, const Strings& texts, Arguments args) {
  return Invoke("StringNormalizer", {Tensor::From(shape, texts)}, std::move(args))[0];
}
Strings Of(const Tensor& tensor) { return tensor.ToVector<std::string>(); }

TEST_CASE("stop words are removed, in any case unless the case counts") {
  const Strings days{"Monday", "tuesday", "MONDAY"};
  const Strings stop{"monday"};
  CHECK(Of(Run({3}, days, {{"stopwords", stop}})) == Strings{"tuesday"});
  CHECK(Of(Run({3}, days, {{"stopwords", stop}, {"is_case_sensitive", 1}})) == days);
  const Tensor row = Run({1, 3}, days,
                         {{"stopwords", Strings{"MONDAY"}},
                          {"is_case_sensitive", 1},
                          {"case_change_action", "UPPER"}});
  CHECK(row.shape() == Shape{1, 2});
  CHECK(Of(row) == Strings{"MONDAY", "TUESDAY"});
  CHECK(Of(Run({1}, {"Monday"}, {{"stopwords", stop}})) == Strings{""});
  CHECK(Run({1, 1}, {"Monday"}, {{"stopwords", stop}}).shape() == Shape{1, 1});
  CHECK(Of(Run({2}, {"A", "b"}, {{"case_change_action", "LOWER"}, {"locale", "en_US"}})) ==
        Strings{"a", "b"});
}

TEST_CASE("other shapes and actions are refused") {
  CHECK(ErrorOf([] {
          Run({2, 1}, {"a", "b"}, {});
        }).message() == "StringNormalizer: the input is [2, 1], expected [C] or [1, C]");
  CHECK(ErrorOf([] {
          Run({1}, {"a"}, {{"case_change_action", "TITLE"}});
        }).code() == ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace string_normalizer_test
