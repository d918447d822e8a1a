// Slice.
#include "opkit/ops/slice.hpp"

#include "data_movement.hpp"
#include "opkit/ops/shape_of.hpp"

namespace slice_test {
using namespace opkit_tests;

namespace {

constexpr int64_t kMax = INT64_MAX, kMin = INT64_MIN;

// x[start:end:step] of 0, 1, …, n - 1.
Floats Slice(int64_t n, int64_t start, int64_t end, int64_t step = 1) {
  return FloatsOf(
      Invoke("Slice", {Counting({n}), List({start}), List({end}), List({0}), List({step})})[0]);
}

TEST_CASE("starts and ends count from either side and are clamped") {
  CHECK(Slice(5, 1, 3) == Floats{1, 2});
  CHECK(Slice(5, -3, -1) == Floats{2, 3});
  CHECK(Slice(5, 3, kMax) == Floats{3, 4});
  CHECK(Slice(5, kMin, 2) == Floats{0, 1});
  CHECK(Slice(5, 3, 3) == Floats{});
  CHECK(Slice(5, 4, 1) == Floats{});
  CHECK(Slice(5, 9, kMax) == Floats{});
  CHECK(Slice(0, 0, kMax) == Floats{});
}

TEST_CASE("steps go both ways") {
  CHECK(Slice(5, 0, kMax, 2) == Floats{0, 2, 4});
  CHECK(Slice(5, 1, 4, 3) == Floats{1});
  CHECK(Slice(5, 0, kMax, kMax) == Floats{0});
  CHECK(Slice(5, -1, kMin, -1) == Floats{4, 3, 2, 1, 0});
  CHECK(Slice(5, 3, 0, -2) == Floats{3, 1});
  CHECK(Slice(5, kMax, kMin, -4) == Floats{4, 0});
  CHECK(Slice(5, 4, kMin, kMin) == Floats{4});
  CHECK(Slice(5, 1, 3, -1) == Floats{});
}

TEST_CASE("several axes, in any order, of int32 as well") {
  const Tensor x = Counting({3, 4});
  CHECK(FloatsOf(Invoke("Slice", {x, List({1, 2}), List({2, 4}), List({-1, 0})})[0]) == Floats{9});
  CHECK(FloatsOf(Invoke("Slice", {x, List({1}), List({2})})[0]) == Floats{4, 5, 6, 7});
  const auto narrow = [](int32_t value) { return Tensor::From<int32_t>({1}, {value}); };
  CHECK(FloatsOf(Invoke("Slice", {x, narrow(0), narrow(3), narrow(1), narrow(2)})[0]) ==
        Floats{0, 2, 4, 6, 8, 10});
  CHECK(FloatsOf(Invoke("Slice", {x.Permute({1, 0}), List({1}), List({3})})[0]) ==
        Floats{1, 5, 9, 2, 6, 10});
  CHECK(FloatsOf(Invoke("Slice", {x, List({}), List({})})[0]) == FloatsOf(x));
}

TEST_CASE("random slices equal slices that are read one index at a time") {
  const uint64_t seed = 31;
  CAPTURE(seed);
  detail::CheckRandom random(seed);
  for (int round = 0; round < 500; ++round) {
    const int64_t n = static_cast<int64_t>(random.Next() % 8);
    const auto any = [&] { return static_cast<int64_t>(random.Next() % 24) - 12; };
    const int64_t start = any(), end = any();
    const int64_t step = random.Next() % 2 ? 1 + static_cast<int64_t>(random.Next() % 4)
                                           : -1 - static_cast<int64_t>(random.Next() % 4);
    const auto place = [&](int64_t at) { return at < 0 ? at + n : at; };
    const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    const auto clamp = [&](int64_t at) { return (std::min)((std::max)(at, low), high); };
    Floats expected;
    const int64_t first =
        step < 0 ? (std::max)(clamp(place(start)), int64_t{0}) : clamp(place(start));
    for (int64_t i = first; step > 0 ? i < clamp(place(end)) : i > clamp(place(end)); i += step)
      if (n > 0) expected.push_back(static_cast<float>(i));
    CAPTURE(n);
    CAPTURE(start);
    CAPTURE(end);
    CAPTURE(step);
    CHECK(Slice(n, start, end, step) == expected);
  }
}

TEST_CASE("extents follow from constant bounds, and wrong lists are refused") {
  const SymbolicShape n46 = {Sym("N"), 4, 6};
  CHECK(Inferred("Slice", {n46, List({1}), List({-1}), List({2})}) == "float32[N, 4, 4]");
  CHECK(Inferred("Slice", {n46, List({0}), List({kMax}), List({0})}) == "float32[N, 4, 6]");
  CHECK(Inferred("Slice", {n46, List({0}), List({INT32_MAX}), List({0})}) == "float32[N, 4, 6]");
  CHECK(Inferred("Slice", {n46, List({-1}), List({kMin}), List({0}), List({-1})}) ==
        "float32[N, 4, 6]");
  CHECK(Inferred("Slice", {n46, List({1}), List({kMax}), List({0})}) == "float32[?, 4, 6]");
  const Known open(DType::kInt64, {1});
  CHECK(Inferred("Slice", {n46, open, open, List({1})}) == "float32[N, <=4, 6]");
  CHECK(Inferred("Slice", {n46, open, open}) == "float32[?, 4, 6]");
  CHECK(Inferred("Slice", {n46, open, open, open}) == "float32[?, <=4, <=6]");
  // The axis has no bound in some of these inputs, and one in others.
  CHECK(Inferred("Slice", {n46, List({1}), List({8})}) == "float32[<=7, 4, 6]");
  CHECK(Inferred("Slice", {n46, List({1}), List({9}), List({0}), List({3})}) ==
        "float32[<=3, 4, 6]");
  CHECK(Inferred("Slice", {n46, List({9}), List({1})}) == "float32[<=0, 4, 6]");
  CHECK(Inferred("Slice", {{Dim::AtMost(5)}, List({-3}), List({4})}) == "float32[<=5]");
  CHECK(Inferred("Slice", {{Dim::AtMost(5)}, List({1}), List({4})}) == "float32[<=3]");
  CHECK(Inferred("Slice", {{Dim::AtMost(5)}, List({0}), List({9})}) == "float32[<=5]");
  CHECK(Inferred("Slice", {kNoRank, open, open}) == "float32[rank unknown]");
  CHECK(Refused("Slice", {{4}, List({0}), List({1, 2})}) ==
        "Slice: 'ends' has 2 elements, expected as many as 'starts', 1");
  CHECK(Refused("Slice", {{4}, List({0}), List({1}), List({0}), List({0})}) ==
        "Slice: a step is 0, expected another number");
  CHECK(Refused("Slice", {{4, 4}, List({0, 0}), List({1, 1}), List({0, -2})}) ==
        "Slice: axis 0 is named twice");
  CHECK(Contains(Refused("Slice", {{4}, List({0, 0}), List({1, 1})}), "has rank 1"));
  CHECK(Contains(Refused("Slice", {{4}, List({0}), List({1}), List({1})}), "axis 1 is outside"));
}

TEST_CASE("the operator and its gradient keep the promises of its schema") {
  CheckNode(OperatorDef("Slice", {"x", "starts", "ends", "axes", "steps"}, {"y"}),
            {Counting({4, 5}), List({3, 1}), List({kMin, 5}), List({0, 1}), List({-2, 2})});
  CheckNode(OperatorDef("Slice", {"x", "starts", "ends"}, {"y"}),
            {Counting({4, 5}), List({1}), List({3})});
  CHECK(HasGradient("Slice"));
}

}  // namespace
}  // namespace slice_test
