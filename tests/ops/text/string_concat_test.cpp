// StringConcat, StringSplit and Equal of strings.
#include "opkit/ops/text/string_concat.hpp"

#include <doctest/doctest.h>

#include "opkit/op/invoke.hpp"
#include "opkit/ops/math/logic.hpp"
#include "support/error_of.hpp"

namespace string_concat_test { namespace {

using namespace opkit;
using Strings = std::vector<std::string>;
using Ints = std::vector<int64_t>;

Tensor Texts(const Shape& shape, const Strings& texts) { return Tensor::From(shape, texts); }
Tensor Texts(const Strings& texts) {
  return Texts(Shape{static_cast<int64_t>(texts.size())}, texts);
}
Strings Of(const Tensor& tensor) { return tensor.ToVector<std::string>(); }
std::string Refused(const std::string& op, const std::vector<Tensor>& inputs, Arguments args = {}) {
  return ErrorOf([&] { Invoke(op, inputs, std::move(args)); }).message();
}

TEST_CASE("StringConcat joins strings and broadcasts them") {
  CHECK(Of(Invoke("StringConcat", {Texts({"abc", ""}), Texts({".com", "x"})})[0]) ==
        Strings{"abc.com", "x"});
  const Tensor both =
      Invoke("StringConcat", {Texts({2, 1}, {"a", "b"}), Texts({1, 3}, {"1", "2", "3"})})[0];
  CHECK(both.shape() == Shape{2, 3});
  CHECK(Of(both) == Strings{"a1", "a2", "a3", "b1", "b2", "b3"});
  CHECK(Of(Invoke("StringConcat", {Texts({}, {"\xe4\xb8\xad"}), Texts({"\xe6\x96\x87"})})[0]) ==
        Strings{"\xe4\xb8\xad\xe6\x96\x87"});
  CHECK(Invoke("StringConcat", {Texts({0, 2}, {}), Texts({"a", "b"})})[0].shape() == Shape{0, 2});
  CHECK(Contains(Refused("StringConcat", {Texts({"a", "b"}), Texts({"a", "b", "c"})}),
                 "cannot be broadcast together"));
  CHECK(Contains(Refused("StringConcat", {Texts({"a"}), Tensor::Scalar(1.f)}), "expected one of"));
}

TEST_CASE("StringSplit splits at a delimiter, at every place or at the first ones") {
  const auto split = [](const Strings& texts, Arguments args) {
    return Invoke("StringSplit", {Texts(texts)}, std::move(args), {.num_outputs = 2});
  };
  std::vector<Tensor> parts = split({"a,b", "", "c,,d,"}, {{"delimiter", ","}});
  CHECK(parts[0].shape() == Shape{3, 4});
  CHECK(Of(parts[0]) == Strings{"a", "b", "", "", "", "", "", "", "c", "", "d", ""});
  CHECK(parts[1].ToVector<int64_t>() == Ints{2, 1, 4});
  parts = split({"a--b--c", "d"}, {{"delimiter", "--"}, {"maxsplit", 1}});
  CHECK(Of(parts[0]) == Strings{"a", "b--c", "d", ""});
  parts = split({"a,b"}, {{"delimiter", ","}, {"maxsplit", 0}});
  CHECK(Of(parts[0]) == Strings{"a,b"});
}

TEST_CASE("without a delimiter, runs of blanks separate the parts") {
  const auto split = [](const Strings& texts, Arguments args = {}) {
    return Invoke("StringSplit", {Texts(texts)}, std::move(args), {.num_outputs = 2});
  };
  std::vector<Tensor> parts = split({" a \t b ", "   ", "c"});
  CHECK(Of(parts[0]) == Strings{"a", "b", "", "", "c", ""});
  CHECK(parts[1].ToVector<int64_t>() == Ints{2, 0, 1});
  parts = split({"a  b c "}, {{"delimiter", ""}, {"maxsplit", 1}});
  CHECK(Of(parts[0]) == Strings{"a", "b c "});
  parts = split({});
  CHECK(parts[0].shape() == Shape{0, 0});
  CHECK(parts[1].shape() == Shape{0});
  CHECK(Invoke("StringSplit", {Texts({}, {"x y"})}, {}, {.num_outputs = 1})[0].shape() == Shape{2});
}

TEST_CASE("Equal compares strings") {
  CHECK(Invoke("Equal", {Texts({2, 1}, {"a", "b"}), Texts({"b", "a"})})[0].ToVector<bool>() ==
        std::vector<bool>{false, true, true, false});
  CHECK(Contains(Refused("Equal", {Texts({"a"}), Tensor::Scalar(1.f)}), "expected dtype string"));
  CHECK(Contains(Refused("Less", {Texts({"a"}), Texts({"b"})}), "expected one of"));
}

}  // namespace
}  // namespace string_concat_test
