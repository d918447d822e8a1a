#include "opkit/base/json/json_line_reader.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "opkit/base/json/json_writer.hpp"

namespace json_line_reader_test { namespace {

using namespace opkit;
using detail::JsonLineReader;
using detail::JsonWriter;

TEST_CASE("a line that the writer wrote is read back") {
  std::string every;
  for (int c = 0; c < 128; ++c) every += static_cast<char>(c);
  every += "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80";
  std::string text;
  JsonWriter(text)
      .BeginObject()
      .Member("text", every)
      .Member("ns", 0.1)
      .Member("n", std::numeric_limits<int64_t>::min())
      .EndObject();
  JsonLineReader line(text);
  std::string found;
  double ns = 0;
  int64_t n = 0;
  CHECK(line.Skip("{\"text\": "));
  CHECK(!line.ReadNumber(&ns));
  CHECK(line.ReadString(&found));
  CHECK(!line.ReadString(&found));
  CHECK(found == every);
  CHECK(!line.Skip(", \"ns\":  "));
  CHECK(line.Skip(", \"ns\": "));
  CHECK(line.ReadNumber(&ns));
  CHECK(ns == 0.1);
  CHECK(line.Skip(", \"n\": "));
  CHECK(line.ReadInteger(&n));
  CHECK(n == std::numeric_limits<int64_t>::min());
  CHECK(line.rest() == "}");
}

TEST_CASE("escapes are read as RFC 8259 has them") {
  const std::pair<std::string_view, std::string_view> texts[] = {
      {R"("\"\\\/\b\f\n\r\t")", "\"\\/\b\f\n\r\t"},
      {R"("a\u00e4\u20AC\ud83d\uDE00z")", "a\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80z"},
      {R"("")", ""}};
  for (const auto& [text, value] : texts) {
    JsonLineReader line(text);
    std::string found = "before";
    CHECK(line.ReadString(&found));
    CHECK(found == value);
    CHECK(line.rest().empty());
  }
}

TEST_CASE("what is no JSON is refused, and changes nothing") {
  for (const std::string_view text :
       {"", "x", "\"", "\"abc", "\"\\", "\"\\\"", "\"\\x\"", "\"\\u12\"", "\"\\u12g4\"", "\"\n\"",
        "\"\\ud83d\"", "\"\\ud83dxxxxxx\"", "\"\\ud83d\\u0041\"", "\"\\ude00\"", "\"\xFF\"",
        "\"\xC3\"", "\"\xED\xA0\x80\""}) {
    CAPTURE(text);
    JsonLineReader line(text);
    std::string found = "before";
    CHECK(!line.ReadString(&found));
    CHECK(found == "before");
    CHECK(line.rest() == text);
  }
  for (const std::string_view text : {"", "-", "null", "inf", "nan", "+1", ".5", "1.", "1.e5", "1e",
                                      "1e+", "- 1", "1e999", "\"1\""}) {
    CAPTURE(text);
    JsonLineReader line(text);
    double found = 7;
    CHECK(!line.ReadNumber(&found));
    CHECK(found == 7);
    CHECK(line.rest() == text);
  }
  for (const std::string_view text : {"", "-", "x", "9223372036854775808"}) {
    int64_t found = 7;
    CHECK(!JsonLineReader(text).ReadInteger(&found));
    CHECK(found == 7);
  }
}

TEST_CASE("a number ends where JSON's grammar ends it") {
  const std::pair<std::string_view, std::string_view> texts[] = {{"1.5e3,", ","}, {"-0.25]", "]"},
                                                                 {"0123", "123"}, {"12 ", " "},
                                                                 {"0x10", "x10"}, {"1E-2", ""}};
  for (const auto& [text, rest] : texts) {
    JsonLineReader line(text);
    double found = 0;
    CHECK(line.ReadNumber(&found));
    CHECK(line.rest() == rest);
  }
  int64_t whole = 0;
  JsonLineReader line("15.5");
  CHECK(line.ReadInteger(&whole));
  CHECK(whole == 15);
  CHECK(line.rest() == ".5");
}

}  // namespace
}  // namespace json_line_reader_test
