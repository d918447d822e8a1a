// Tokenizer of com.microsoft in a program without RE2.
#include "opkit/ops/text/tokenizer.hpp"

#include <doctest/doctest.h>

#include "opkit/op/invoke.hpp"
#include "support/error_of.hpp"

namespace tokenizer_test { namespace {

using namespace opkit;
using Strings = std::vector<std::string>;

Tensor Run(const Tensor& x, const char* name, Attribute value, int64_t least = 1) {
  Arguments args{{"mark", int64_t{0}}, {"pad_value", "#"}, {"mincharnum", least}};
  args.Set(name, std::move(value));
  return Invoke("com.microsoft.Tokenizer", {x}, std::move(args),
                {.backends = kReferenceBackend})[0];
}

TEST_CASE("an empty separator makes a word of each character") {
  const Tensor y = Run(Tensor::From<std::string>({3}, {"aéb", "c", ""}), "separators", Strings{""});
  CHECK(y.shape() == Shape{3, 3});
  CHECK(y.ToVector<std::string>() == Strings{"a", "é", "b", "c", "#", "#", "#", "#", "#"});
  CHECK(Run(Tensor(Shape{0}, DType::kString), "separators", Strings{""}).shape() == Shape{0, 0});
}

TEST_CASE("the plain kernel names the package that expressions need") {
  const Tensor x = Tensor::From<std::string>({1}, {"a"});
  CHECK(
      Contains(ErrorOf([&] { Run(x, "separators", Strings{" "}); }).what(), "Tokenizer needs RE2"));
  CHECK(Contains(ErrorOf([&] { Run(x, "tokenexp", "a"); }).what(), "libre2-dev"));
}

TEST_CASE("wrong attributes are an Error") {
  const Tensor x = Tensor::From<std::string>({1}, {"a"});
  CHECK(Contains(ErrorOf([&] { Run(x, "tokenexp", ""); }).what(), "expected 'separators', or"));
  CHECK(Contains(ErrorOf([&] { Run(x, "separators", Strings{""}, 2); }).what(),
                 "'mincharnum' is 2, expected 1"));
  CHECK(Contains(ErrorOf([&] { Run(x, "separators", Strings{" "}, 0); }).what(),
                 "'mincharnum' is 0, expected a number from 1 on"));
  CHECK(Contains(ErrorOf([&] {
                   Run(Tensor::From<std::string>({1, 1, 1}, {"a"}), "separators", Strings{""});
                 }).what(),
                 "expected [C] or [N, C]"));
}

}  // namespace
}  // namespace tokenizer_test
