#include "opkit/backends/eigen/support/conv_plan.hpp"

#include <doctest/doctest.h>

namespace conv_plan_test {
using namespace opkit;

namespace {

// How many parts of a Conv may run at a time on two threads.
int64_t Chunks(int64_t groups, const Shape& x, const Shape& w) {
  const WindowAttributes attributes(
      OperatorDef("Conv").Arg("pads", std::vector<int64_t>{1, 1, 1, 1}));
  const detail::ConvPlan plan(ConvSizes::Of(attributes, groups, x, w), groups,
                              /*threads=*/2);
  return (plan.tasks - 1) / plan.grain + 1;
}

TEST_CASE("a depthwise convolution is cut by its cost, not by its few operations") {
  CHECK(Chunks(272, {1, 272, 14, 14}, {272, 1, 3, 3}) >= 4);  // 70 us on one thread
  CHECK(Chunks(544, {1, 544, 7, 7}, {544, 1, 3, 3}) >= 4);
  CHECK(Chunks(8, {1, 8, 7, 7}, {8, 1, 3, 3}) == 1);
}

TEST_CASE("a convolution of many operations has enough parts, one of few is not cut") {
  CHECK(Chunks(1, {1, 64, 28, 28}, {64, 64, 3, 3}) >= 4);
  CHECK(Chunks(1, {1, 4, 6, 6}, {4, 4, 3, 3}) == 1);
}

}  // namespace
}  // namespace conv_plan_test
