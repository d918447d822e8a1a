#include "opkit/base/algorithm.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace opkit { namespace {

TEST_CASE("Contains finds a value, by the == of its elements") {
  const std::vector<std::string> names{"a", "b"};
  CHECK(detail::Contains(names, std::string_view("b")));
  CHECK(!detail::Contains(names, "c"));
  CHECK(!detail::Contains(std::vector<int>{}, 0));
}

TEST_CASE("SortedOrder numbers nothing, one thing and several, equal ones as they are") {
  const auto never = [](int, int) { return false; };
  CHECK(detail::SortedOrder(0, never).empty());
  CHECK(detail::SortedOrder(1, never) == std::vector<int>{0});
  CHECK(detail::SortedOrder(5, never) == std::vector<int>{0, 1, 2, 3, 4});
  const std::vector<int> keys = {3, 1, 2, 1, 3};
  CHECK(detail::SortedOrder(keys.size(), [&](int a, int b) {
          return keys[static_cast<size_t>(a)] < keys[static_cast<size_t>(b)];
        }) == std::vector<int>{1, 3, 2, 0, 4});
}

TEST_CASE("StableSort does as std::stable_sort, on lists of every length") {
  struct Item {
    int key, place;
    bool operator==(const Item&) const = default;
  };
  constexpr unsigned kSeed = 21;
  INFO("seed ", kSeed);
  std::mt19937 random(kSeed);
  const auto before = [](const Item& a, const Item& b) { return a.key < b.key; };
  for (int length = 0; length < 200; ++length) {
    std::vector<Item> items;
    for (int i = 0; i < length; ++i) items.push_back({static_cast<int>(random() % 20), i});
    std::vector<Item> expected = items;
    std::stable_sort(expected.begin(), expected.end(), before);
    detail::StableSort(items, before);
    CHECK(items == expected);
  }
}

TEST_CASE("items that can only be moved are sorted, and strings by their own order") {
  std::vector<std::unique_ptr<int>> items;
  for (const int value : {2, 3, 1}) items.push_back(std::make_unique<int>(value));
  detail::StableSort(items, [](const auto& a, const auto& b) { return *a < *b; });
  CHECK((*items[0] == 1 && *items[1] == 2 && *items[2] == 3));
  std::vector<std::string> names = {"b", "a", "", "ab"};
  detail::StableSort(names, [](const std::string& a, const std::string& b) { return a < b; });
  CHECK(names == std::vector<std::string>{"", "a", "ab", "b"});
}

}  // namespace
}  // namespace opkit
