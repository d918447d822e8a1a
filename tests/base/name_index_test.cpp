#include "opkit/base/name_index.hpp"

#include <doctest/doctest.h>

#include "support/lists.hpp"

namespace name_index_test { namespace {

using opkit::detail::NameIndex;

TEST_CASE("names are numbered in the order in which they were added, each once") {
  NameIndex index;
  CHECK(index.Add("b") == 0);
  CHECK(index.Add("a") == 1);
  CHECK(index.Add("b") == 0);
  CHECK(index.Add("") == 2);
  CHECK(index.size() == 3);
  CHECK(index[1] == "a");
  CHECK(index.names() == Strings{"b", "a", ""});
}

TEST_CASE("a name that was never added has no number") {
  NameIndex index;
  CHECK(index.Find("a") == -1);
  index.Add("a");
  CHECK(index.Find("a") == 0);
  CHECK(index.Find("A") == -1);
  CHECK(index.Find("") == -1);
}

TEST_CASE("many names keep their numbers while the index grows") {
  NameIndex index;
  for (int i = 0; i < 10'000; ++i) {
    REQUIRE(index.Add("name" + std::to_string(i)) == i);
    REQUIRE(index.Find("name" + std::to_string(i / 2)) == i / 2);
  }
  CHECK(index.Find("name10000") == -1);
  CHECK(index.size() == 10'000);
}

TEST_CASE("a copy grows by itself") {
  NameIndex index;
  index.Add("a");
  NameIndex copy = index;
  CHECK(copy.Add("b") == 1);
  CHECK(copy.Find("a") == 0);
  CHECK(index.Find("b") == -1);
}

}  // namespace
}  // namespace name_index_test
