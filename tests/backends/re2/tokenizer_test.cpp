// Tokenizer of com.microsoft with RE2. The values are those of ONNX Runtime 1.31.
#include "opkit/backends/re2/tokenizer.hpp"

#include <doctest/doctest.h>

#include "opkit/op/invoke.hpp"
#include "support/error_of.hpp"

namespace re2_tokenizer_test { namespace {

using namespace opkit;
using Strings = std::vector<std::string>;

Arguments Node(const char* name, Attribute value, int64_t least = 1, int64_t mark = 0) {
  Arguments args{{"mark", mark}, {"pad_value", "#"}, {"mincharnum", least}};
  args.Set(name, std::move(value));
  return args;
}
Tensor Run(const Tensor& x, Arguments args) {
  return Invoke("com.microsoft.Tokenizer", {x}, std::move(args))[0];
}
Strings Split(const char* text, Strings separators, int64_t least = 1) {
  return Run(Tensor::From<std::string>({1}, {text}),
             Node("separators", std::move(separators), least))
      .ToVector<std::string>();
}
Strings Words(const char* text, const char* expression, int64_t least = 1) {
  return Run(Tensor::From<std::string>({1}, {text}), Node("tokenexp", expression, least))
      .ToVector<std::string>();
}

TEST_CASE("separators split a text in turn") {
  const Tensor y = Run(Tensor::From<std::string>({3}, {"ab cd", "e  f,g", " h "}),
                       Node("separators", Strings{" ", ","}));
  CHECK(y.shape() == Shape{3, 3});
  CHECK(y.ToVector<std::string>() == Strings{"ab", "cd", "#", "e", "f", "g", "h", "#", "#"});
  CHECK(Split("ab1cd22e", {"[0-9]"}) == Strings{"ab", "cd", "e"});
  CHECK(Split("abcab", {"a", "ab"}) == Strings{"bc", "b"});
  CHECK(Split("abcab", {"ab", "a"}) == Strings{"c"});
  CHECK(Split("a,b;c d", {",", ";"}) == Strings{"a", "b", "c d"});
  CHECK(Split("abc", {"", ","}).empty());
  CHECK(Split("abc", {"x*"}).empty());
}

TEST_CASE("short words are left out, by characters") {
  CHECK(Split("ab c de", {" "}, 2) == Strings{"ab", "de"});
  CHECK(Split("é éé a", {" "}, 2) == Strings{"éé"});
  CHECK(Words("hello, a bb", "[a-z]+", 2) == Strings{"hello", "bb"});
  CHECK(Words("abcabc", "a|bc", 2) == Strings{"bc", "bc"});
}

TEST_CASE("words match an expression, and the longest match counts") {
  CHECK(Words("hello, world 12", "[a-zA-Z0-9_]+") == Strings{"hello", "world", "12"});
  CHECK(Words("aéb", ".") == Strings{"a", "é", "b"});
  CHECK(Words("baab", "a*") == Strings{"aa"});
  CHECK(Words("ab ab", "(a)b") == Strings{"ab", "ab"});
  CHECK(Words("abab", "^ab") == Strings{"ab"});
  CHECK(Words("xaxab", "a|ab") == Strings{"a", "ab"});
}

TEST_CASE("marks stand around the words of each text") {
  const Tensor y = Run(Tensor::From<std::string>({2, 2}, {"ab cd", "e", "", "f g h"}),
                       Node("separators", Strings{" "}, 1, 1));
  CHECK(y.shape() == Shape{2, 2, 5});
  CHECK(y.ToVector<std::string>() == Strings{"\x02", "ab",   "cd",   "\x03", "#",  //
                                             "\x02", "e",    "\x03", "#",    "#",  //
                                             "\x02", "\x03", "#",    "#",    "#",  //
                                             "\x02", "f",    "g",    "h",    "\x03"});
  CHECK(Run(Tensor::From<std::string>({2}, {"", ""}), Node("separators", Strings{" "}, 1, 1))
            .shape() == Shape{2, 0});
}

TEST_CASE("an expression that RE2 cannot read is an Error with RE2's reason") {
  const Error error = ErrorOf([] { Words("a", "(a"); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(error.message(), "the expression '(a' is wrong: missing )"));
}

}  // namespace
}  // namespace re2_tokenizer_test
