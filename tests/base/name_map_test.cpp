#include "opkit/base/name_map.hpp"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "opkit/base/strings.hpp"

namespace opkit { namespace {

TEST_CASE("a name has no value before operator[] and after Erase") {
  NameMap<int> map;
  CHECK(map.empty());
  CHECK(map.Find("x") == nullptr);
  CHECK(!map.Has("x"));
  CHECK(map["x"] == 0);
  map["x"] = 3;
  const NameMap<int>& same = map;
  REQUIRE(same.Find("x"));
  CHECK(*same.Find("x") == 3);
  CHECK(map.size() == 1);
  CHECK(!map.Erase("y"));
  CHECK(map.Erase("x"));
  CHECK(map.empty());
  CHECK(!map.Has("x"));
}

TEST_CASE("rows are in the order of their names, as Names lists them") {
  NameMap<std::string> map;
  for (const char* name : {"b", "", "ab", "a", "B"}) map[name] = StrCat("value of ", name);
  std::vector<std::string> names;
  for (const auto& row : map) {
    names.push_back(row.name);
    CHECK(row.value == StrCat("value of ", row.name));
  }
  CHECK(names == std::vector<std::string>{"", "B", "a", "ab", "b"});
  CHECK(map.Names() == names);
}

TEST_CASE("a name may hold a zero, and a prefix of a name is another name") {
  NameMap<int> map;
  map[std::string("a\0b", 3)] = 1;
  map["a"] = 2;
  CHECK(map.size() == 2);
  CHECK(*map.Find(std::string_view("a\0b", 3)) == 1);
  CHECK(*map.Find("a") == 2);
}

TEST_CASE("references to a value and its name outlast every other insertion and erasure") {
  NameMap<int> map;
  auto& row = map.RowOf("middle");
  row.value = 7;
  for (int i = 0; i < 100; ++i) map[StrCat(i % 2 ? "a" : "z", i)] = i;
  for (int i = 0; i < 100; i += 3) map.Erase(StrCat(i % 2 ? "a" : "z", i));
  CHECK(map.Find("middle") == &row.value);
  CHECK(row.name == "middle");
  CHECK(row.value == 7);
}

TEST_CASE("EraseIf calls its predicate once for each row, in order, and erases the true ones") {
  NameMap<int> map;
  for (int i = 0; i < 10; ++i) map[StrCat("row ", i)] = i;
  std::vector<int> asked;
  CHECK(map.EraseIf([&](const auto& row) {
    asked.push_back(row.value);
    return row.value % 3 != 0;
  }));
  CHECK(asked == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(map.Names() == std::vector<std::string>{"row 0", "row 3", "row 6", "row 9"});
  CHECK(!map.EraseIf([](const auto&) { return false; }));
}

TEST_CASE("a random program of insertions and erasures does as std::map") {
  constexpr unsigned kSeed = 20;
  INFO("seed ", kSeed);
  std::mt19937 random(kSeed);
  NameMap<int> map;
  std::map<std::string, int> expected;
  for (int i = 0; i < 3000; ++i) {
    const std::string name = std::to_string(random() % 200);
    if (random() % 3 == 0) {
      CHECK(map.Erase(name) == (expected.erase(name) == 1));
    } else {
      map[name] = i;
      expected[name] = i;
    }
    REQUIRE(map.size() == expected.size());
  }
  auto row = expected.begin();
  for (const auto& found : map) {
    CHECK(found.name == row->first);
    CHECK(found.value == row->second);
    ++row;
  }
}

}  // namespace
}  // namespace opkit
