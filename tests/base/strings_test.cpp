#include "opkit/base/strings.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "opkit/base/output_file.hpp"
#include "opkit/op/inference.hpp"

// A program's own names.
namespace strings_test_program {
struct Text {
  std::string value;
};
struct OutputFile {};
}  // namespace strings_test_program

namespace strings_test {
namespace somewhere {
struct Point {
  int x, y;
};
std::string ToString(const Point& p) { return opkit::StrCat("(", p.x, ", ", p.y, ")"); }
}  // namespace somewhere

namespace {

using opkit::StrCat;

TEST_CASE("StrCat takes any number of parts, and calls nest") {
  CHECK(StrCat().empty());
  CHECK(StrCat("").empty());
  CHECK(StrCat(1) == "1");
  CHECK(StrCat(1, 2, 3, 4, 5) == "12345");
  CHECK(StrCat(1, 2, 3, 4, 5, 6, 7, 8, 9, 'a', 'b', 'c', 'd', 'e', 'f', 'g', "h", std::string("i"),
               std::string_view("jk"), 0.5) == "123456789abcdefghijk0.5");
  CHECK(StrCat(StrCat("a", "b"), "c") == "abc");
}

TEST_CASE("a type with ToString prints to streams as StrCat joins it") {
  std::ostringstream out;
  out << opkit::Shape{2, 3} << ' ' << opkit::DType::kInt8 << ' '
      << opkit::TensorInfo(opkit::DType::kFloat32, {opkit::Sym("N"), 3});
  CHECK(out.str() == "[2, 3] int8 float32[N, 3]");
  using namespace opkit;
  out.str({});
  out << 1 << 'c' << std::string("text") << "literal" << std::string_view("view") << 1.5 << true;
  CHECK(out.str() == "1ctextliteralview1.51");
}

TEST_CASE("StrCat joins every kind of text") {
  CHECK(StrCat("a", 'b', std::string("c"), std::string_view("de").substr(1)) == "abce");
  const char* none = nullptr;
  CHECK(StrCat(none) == "(null)");
}

TEST_CASE("integers of every width are written in decimal") {
  CHECK(StrCat((std::numeric_limits<int64_t>::min)()) == "-9223372036854775808");
  CHECK(StrCat((std::numeric_limits<uint64_t>::max)()) == "18446744073709551615");
  CHECK(StrCat(uint8_t{65}, ' ', int8_t{-1}, ' ', short{-2}, ' ', 4294967295u) ==
        "65 -1 -2 4294967295");
  CHECK(StrCat(-1L, ' ', -1LL, ' ', 1UL, ' ', 18446744073709551615ULL) ==
        "-1 -1 1 18446744073709551615");
}

TEST_CASE("booleans are words and floating point keeps nine significant digits") {
  CHECK(StrCat(true, '/', false) == "true/false");
  CHECK(StrCat(0.5, ' ', 0.1f, ' ', 1e300) == "0.5 0.100000001 1e+300");
}

TEST_CASE("vectors are listed in brackets, nested ones too") {
  CHECK(StrCat(std::vector<int>{}) == "[]");
  CHECK(StrCat(std::vector<int>{1, 2}) == "[1, 2]");
  CHECK(StrCat(std::vector<bool>{true, false}) == "[true, false]");
  CHECK(StrCat(std::vector<std::vector<int>>{{1}, {2, 3}}) == "[[1], [2, 3]]");
}

TEST_CASE("a type with a ToString in its own namespace is written by it") {
  CHECK(StrCat("at ", somewhere::Point{1, 2}) == "at (1, 2)");
  CHECK(StrCat(std::vector<somewhere::Point>{{1, 2}, {3, 4}}) == "[(1, 2), (3, 4)]");
}

TEST_CASE("a program that uses all of opkit's names has everyday ones for itself") {
  using namespace opkit;                 // NOLINT: as a program writes it
  using namespace strings_test_program;  // NOLINT: either name would be ambiguous
  const Text text{"its own"};
  const OutputFile file{};
  static_cast<void>(file);
  CHECK(StrCat(text.value) == "its own");
}

}  // namespace
}  // namespace strings_test
