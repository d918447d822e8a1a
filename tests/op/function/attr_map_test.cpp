#include "opkit/op/function/attr_map.hpp"

#include <doctest/doctest.h>

#include <map>
#include <unordered_map>

#include "support/error_of.hpp"

namespace attr_map_test {
using opkit::Arguments;
using opkit::AttrMap;
using opkit::ErrorCode;

namespace {

using Map = std::map<std::string, std::string>;

std::string Text(opkit::Attribute value) {
  const AttrMap attrs(Arguments{{"a", std::move(value)}});
  return *attrs.Find("a");
}

}  // namespace

TEST_CASE("attributes are presented as text that reads back as the same value") {
  CHECK(Text(3) == "3");
  CHECK(Text(int64_t{-9223372036854775807}) == "-9223372036854775807");
  CHECK(Text(true) == "true");
  CHECK(Text("plain text") == "plain text");
  CHECK(Text(0.1f) == "0.1");
  CHECK(Text(2.0) == "2");
  CHECK(Text(0.1) == "0.1");
  CHECK(Text(1.0 / 3) == "0.3333333333333333");
  CHECK(Text(std::vector<int>{1, 2}) == "[1, 2]");
  CHECK(Text(std::vector<float>{0.5f, 0.1f}) == "[0.5, 0.1]");
  CHECK(Text(std::vector<bool>{true, false}) == "[true, false]");
  CHECK(Text(std::vector<std::string>{"a", "b"}) == "[\"a\", \"b\"]");
  CHECK(Text(std::vector<double>{}) == "[]");
}

TEST_CASE("text is read as the requested type") {
  const AttrMap attrs(Arguments{{"i", 3},
                                {"f", 0.1f},
                                {"b", true},
                                {"s", "x y"},
                                {"is", std::vector<int>{1, 2}},
                                {"ss", std::vector<std::string>{"a,b", "c"}},
                                {"text", "(4, 5)"},
                                {"one", "1"}});
  CHECK(attrs.Get<int>("i") == 3);
  CHECK(attrs.Get<uint8_t>("i") == 3);
  CHECK(attrs.Get<double>("i") == 3);
  CHECK(attrs.Get<float>("f") == 0.1f);
  CHECK(attrs.Get<bool>("b"));
  CHECK(attrs.Get<bool>("one"));
  CHECK(attrs.Get<std::string>("s") == "x y");
  CHECK(attrs.Get<std::vector<int64_t>>("is") == std::vector<int64_t>{1, 2});
  CHECK(attrs.Get<std::vector<int>>("text") == std::vector<int>{4, 5});
  CHECK(attrs.Get<std::vector<std::string>>("ss") == std::vector<std::string>{"a,b", "c"});
  CHECK(attrs.Get("missing", 7) == 7);
  CHECK(attrs.Get("missing", "text") == "text");
  CHECK(attrs.Get("s", "text") == "x y");
  CHECK(attrs.Find("missing") == nullptr);
  CHECK(attrs.Has("i"));
}

TEST_CASE("a text that does not read as the type is an error that shows it") {
  const AttrMap attrs(Arguments{{"axis", "two"}, {"big", 300}, {"list", std::vector<int>{1, 2}}});
  const opkit::Error wrong = ErrorOf([&] { attrs.Get<int>("axis"); });
  CHECK(wrong.code() == ErrorCode::kTypeMismatch);
  CHECK(wrong.message() == "attribute 'axis' is \"two\", which does not read as int");
  CHECK(ErrorOf([&] { attrs.Get("axis", 0.5); }).code() == ErrorCode::kTypeMismatch);
  CHECK(ErrorOf([&] { attrs.Get<int8_t>("big"); }).code() == ErrorCode::kTypeMismatch);
  CHECK(ErrorOf([&] { attrs.Get<int>("list"); }).code() == ErrorCode::kTypeMismatch);
  const opkit::Error missing = ErrorOf([&] { attrs.Get<int>("axes"); });
  CHECK(missing.code() == ErrorCode::kNotFound);
  CHECK(Contains(missing.message(), "no attribute 'axes' (did you mean 'axis'?"));
}

TEST_CASE("names that begin with __ are kept, but for the toolkit's own") {
  const AttrMap attrs(Arguments{{"__mine", 1}, {"__state", "of the forward operator"}});
  CHECK(attrs.Get<int>("__mine") == 1);
  CHECK(attrs.size() == 1);
}

TEST_CASE("a default stands for an attribute that is not given, and for no other") {
  AttrMap attrs(Arguments{{"a", 1}});
  attrs.AddDefault("a", opkit::Attribute(5));
  attrs.AddDefault("b", opkit::Attribute(0.5f));
  CHECK(attrs.Get<int>("a") == 1);
  CHECK(attrs.Get<float>("b") == 0.5f);
}

TEST_CASE("a map of any kind is made once and kept") {
  const AttrMap attrs(Arguments{{"a", 1}, {"b", "x"}, {"__state", "the toolkit's own"}});
  const Map& map = attrs.As<Map>();
  CHECK(map == Map{{"a", "1"}, {"b", "x"}});
  CHECK(&attrs.As<Map>() == &map);
  CHECK(attrs.As<std::unordered_map<std::string, std::string>>().at("b") == "x");
  CHECK(&attrs.As<Map>() == &map);
  CHECK(attrs.size() == 2);
}

}  // namespace attr_map_test
