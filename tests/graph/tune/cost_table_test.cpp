#include "opkit/graph/tune/cost_table.hpp"

#include <doctest/doctest.h>

namespace cost_table_test {

using namespace opkit;

TEST_CASE("a table adds up the samples of a key") {
  detail::CostTable table;
  CHECK(table.Find("a") == nullptr);
  CHECK(table.Median("a", 7) == 7);
  table.Add("a", {1, 2, 3});
  table.Add("a", {4, 5});
  CHECK(table.Median("a", 7) == 3);
  REQUIRE(table.Find("a"));
  CHECK(table.Find("a")->ns.size() == 5);
  CallTimes known;
  known.median = 9;
  table.AddSummary("b", known);
  CHECK(table.Median("b", 7) == 9);
  CHECK(table.times().size() == 2);
}

TEST_CASE("a table keeps what is fused and what was refused apart") {
  detail::CostTable table;
  table.AddPair("a", true);
  table.AddPair("b", false);
  table.AddRefused("c");
  CHECK(table.IsFused("a"));
  CHECK(!table.IsFused("b"));
  CHECK(table.IsUnfused("b"));
  CHECK(!table.IsUnfused("a"));
  CHECK(table.IsRefused("c"));
  CHECK(!table.IsRefused("a"));
}

}  // namespace cost_table_test
