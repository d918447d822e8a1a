#include "opkit/base/name_table.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <memory>

namespace name_table_test {
namespace {

using opkit::NameTable;

TEST_CASE("an object is made once under its name, from the arguments given then") {
  NameTable<std::string> table;
  CHECK(table.empty());
  CHECK(table.Find("a") == nullptr);
  CHECK(table.FindOrAdd("a", size_t{3}, 'x') == "xxx");
  CHECK(table.FindOrAdd("a", size_t{5}, 'y') == "xxx");
  CHECK(table.size() == 1);
  REQUIRE(table.Find("a"));
  CHECK(*table.Find("a") == "xxx");
}

TEST_CASE("rows come in the order of their names, whatever order they were added in") {
  NameTable<int> table;
  for (const char* name : {"pear", "apple", "", "plum", "Apple", "pea"}) table.FindOrAdd(name);
  CHECK(table.Names() == std::vector<std::string>{"", "Apple", "apple", "pea", "pear", "plum"});
  std::string all;
  for (const auto& row : table) all += row->name + ";";
  CHECK(all == ";Apple;apple;pea;pear;plum;");
}

TEST_CASE("a name is found whole, not by its beginning") {
  NameTable<int> table;
  table.FindOrAdd("pear");
  CHECK(table.Find("pea") == nullptr);
  CHECK(table.Find("pears") == nullptr);
  CHECK(table.Find("") == nullptr);
}

TEST_CASE("addresses stay when others come and go") {
  NameTable<int> table;
  int* middle = &table.FindOrAdd("m", 7);
  for (char c = 'a'; c <= 'z'; ++c) table.FindOrAdd(std::string(1, c));
  CHECK(table.Erase("a"));
  CHECK(table.Erase("z"));
  CHECK(table.Find("m") == middle);
  CHECK(*middle == 7);
}

TEST_CASE("erasing tells whether there was one, and makes room for a new one") {
  NameTable<int> table;
  table.FindOrAdd("a", 1);
  CHECK_FALSE(table.Erase("b"));
  CHECK(table.Erase("a"));
  CHECK_FALSE(table.Erase("a"));
  CHECK(table.empty());
  CHECK(table.FindOrAdd("a", 2) == 2);
}

TEST_CASE("a table of objects that only move") {
  NameTable<std::unique_ptr<int>> table;
  table.FindOrAdd("a", std::make_unique<int>(4));
  CHECK(**table.Find("a") == 4);
  const NameTable<std::unique_ptr<int>> moved = std::move(table);
  CHECK(**moved.Find("a") == 4);
}

TEST_CASE("a table agrees with std::map over random additions and removals") {
  uint32_t state = 2463534242u;  // the seed
  INFO("seed 2463534242");
  auto random = [&state] {
    state ^= state << 13;
    state ^= state >> 17;
    return state ^= state << 5;
  };
  NameTable<uint32_t> table;
  std::map<std::string, uint32_t> map;
  for (int i = 0; i < 2000; ++i) {
    const std::string name = std::to_string(random() % 100);
    if (random() % 3 == 0) {
      CHECK(table.Erase(name) == (map.erase(name) == 1));
    } else {
      const uint32_t value = random();
      CHECK(table.FindOrAdd(name, value) == map.emplace(name, value).first->second);
    }
  }
  REQUIRE(table.size() == map.size());
  auto expected = map.begin();
  for (const auto& row : table) {
    CHECK(row->name == expected->first);
    CHECK(row->value == (expected++)->second);
  }
}

}  // namespace
}  // namespace name_table_test
