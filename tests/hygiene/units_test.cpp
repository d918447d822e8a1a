// Two translation units that include everything make one program with one toolkit in it.
#include <doctest/doctest.h>

#include <algorithm>

#include "units.hpp"

TEST_CASE("two units share the allocators, the registry and the thread's invocation") {
  const Seen here = SeenHere(), there = SeenAmongHostileMacros();
  CHECK(here.allocator == there.allocator);
  CHECK(here.registry == there.registry);
  CHECK(here.invocation == there.invocation);
  CHECK((here.fail != there.fail));  // these are two
}

TEST_CASE("an error thrown in another unit is caught by its type") {
  CHECK_THROWS_WITH_AS(SeenAmongHostileMacros().fail(), "from its unit", opkit::Error);
}

TEST_CASE("an operator registered from a header that several units include appears once") {
  const auto names = opkit::RegisteredOperators();
  CHECK(std::count(names.begin(), names.end(), "SeenTwice") == 1);
  CHECK(opkit::OpRegistry::Global().KernelsOf("SeenTwice").size() == 1);
  CHECK(opkit::StrCat(opkit::CheckRegistrations()) == "[]");
  opkit::Workspace workspace;
  CHECK(opkit::CreateOperator(opkit::OperatorDef("SeenTwice"), &workspace)->Run());
}

TEST_CASE("an operator written among hostile macros runs") {
  opkit::Workspace workspace;
  const auto op = opkit::CreateOperator(
      opkit::OperatorDef("AmongHostileMacros").Arg("limit", 3).Arg("value", 4), &workspace);
  CHECK_THROWS_WITH_AS(op->Run(), doctest::Contains("expected value <= limit: but found 4"),
                       opkit::Error);
}

TEST_CASE("Compile in a program without partitioners throws an error that the program has none") {
  opkit::Graph graph;
  graph.AddNode(opkit::OperatorDef("SeenTwice"));
  CHECK_THROWS_WITH_AS(
      opkit::Compile(graph, {.partitioners = {"mine"}}),
      doctest::Contains("no partitioner 'mine' is registered; REGISTER_PARTITIONER registers one"),
      opkit::Error);
}
