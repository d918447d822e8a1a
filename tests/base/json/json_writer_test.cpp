#include "opkit/base/json/json_writer.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <span>
#include <vector>

namespace json_writer_test { namespace {

using namespace opkit;
using detail::JsonWriter;

std::string Quoted(std::string_view text) {
  std::string out;
  detail::AppendJsonString(out, text);
  return out;
}

TEST_CASE("objects and arrays in each other get their commas") {
  const auto write = [](JsonWriter::Spacing spacing) {
    std::string out;
    JsonWriter json(out, spacing);
    json.BeginObject().Member("a", 1).Key("b").BeginArray().EndArray();
    json.Key("c").BeginArray().BeginObject().EndObject().BeginObject().Member("d", "e");
    json.EndObject().Value(true).EndArray().EndObject();
    return out;
  };
  CHECK(write(JsonWriter::kCompact) == R"({"a":1,"b":[],"c":[{},{"d":"e"},true]})");
  CHECK(write(JsonWriter::kSpaced) == R"({"a": 1, "b": [], "c": [{}, {"d": "e"}, true]})");
}

TEST_CASE("values of every kind") {
  std::string out;
  JsonWriter json(out);
  const std::string text = "s";
  const std::vector<int64_t> numbers = {1, -2};
  json.BeginArray().Value(text).Value(std::string_view("v")).Value("literal").Value(false);
  json.Value(numbers).Value(std::span<const int64_t>()).Value(std::vector<std::string>{"x", "y"});
  json.Value(std::numeric_limits<uint64_t>::max()).Value(std::numeric_limits<int64_t>::min());
  json.EndArray();
  CHECK(out == R"(["s", "v", "literal", false, [1, -2], [], ["x", "y"], 18446744073709551615, )"
               R"(-9223372036854775808])");
}

TEST_CASE("a number reads back exactly, and a number that JSON lacks is null") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::string out;
  JsonWriter(out).Value(std::vector{0.1, -2.0, 1e300, std::numeric_limits<double>::quiet_NaN(),
                                    kInfinity, -kInfinity});
  CHECK(out == "[0.1, -2, 1e+300, null, null, null]");
}

TEST_CASE("items and ends begin on lines of their own on request") {
  std::string out;
  JsonWriter json(out);
  json.BeginObject().NewLine(" ").Key("rows").BeginArray();
  for (const int row : {1, 2}) json.NewLine("  ").Value(row);
  json.NewLine(" ").EndArray().NewLine().EndObject();
  CHECK(out == "{\n \"rows\": [\n  1,\n  2\n ]\n}");
}

TEST_CASE("a value written by the caller counts as an item, and the text may be moved away") {
  std::string out;
  JsonWriter json(out, JsonWriter::kCompact);
  json.BeginArray().Item() += "1.500";
  json.Value(2);
  CHECK(out == "[1.500,2");
  out.clear();
  json.Value(3).EndArray();
  CHECK(out == ",3]");
}

TEST_CASE("text and keys are escaped, and bytes that are no UTF-8 are replaced one by one") {
  CHECK(Quoted("a\"b\\c\n\x1f") == R"("a\"b\\c\u000a\u001f")");
  CHECK(Quoted("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80") ==
        "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"");
  const std::string replaced = "\xEF\xBF\xBD";
  CHECK(Quoted("\x80") == "\"" + replaced + "\"");
  CHECK(Quoted("\xe0\x80\x80") == "\"" + replaced + replaced + replaced + "\"");  // too long a form
  CHECK(Quoted("a\xc3") == "\"a" + replaced + "\"");                              // cut off
  CHECK(Quoted(std::string_view("\0", 1)) == R"("\u0000")");
  std::string out;
  JsonWriter(out).BeginObject().Member("q\"", 1).EndObject();
  CHECK(out == R"({"q\"": 1})");
}

}  // namespace
}  // namespace json_writer_test
