#include "opkit/base/interned_names.hpp"

#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <vector>

namespace interned_names_test { namespace {

using namespace opkit;

TEST_CASE("a name has one number, and the number gives the name back") {
  const uint32_t number = InternName("interned_names_test");
  CHECK(number != 0);
  CHECK(InternName(std::string("interned_names_test")) == number);
  CHECK(InternName("interned_names_test2") != number);
  CHECK(InternedName(number) == "interned_names_test");
}

TEST_CASE("the empty name is 0, and a number that was never given has no name") {
  CHECK(InternName("") == 0);
  CHECK(InternedName(0).empty());
  CHECK(InternedName(4'000'000'000).empty());
}

TEST_CASE("names from several threads get one number each and stay where they are") {
  const uint32_t first = InternName("first of many");
  std::vector<std::vector<uint32_t>> numbers(4);
  std::vector<std::thread> threads;
  for (auto& mine : numbers)
    threads.emplace_back([&mine] {
      for (int i = 0; i < 1000; ++i) mine.push_back(InternName("many " + std::to_string(i)));
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& mine : numbers) CHECK(mine == numbers[0]);
  CHECK(InternedName(first) == "first of many");
}

}  // namespace
}  // namespace interned_names_test
