// Broadcasting of shapes, and axes given by number.
#include "opkit/ops/support/broadcast.hpp"

#include <doctest/doctest.h>

#include "opkit/ops/support/axes.hpp"
#include "support/error_of.hpp"
#include "support/lists.hpp"

namespace broadcast_test {
using namespace opkit;

namespace {

SymbolicShape Both(const SymbolicShape& a, const SymbolicShape& b) {
  const SymbolicShape shape = BroadcastShape(a, b);
  CHECK(BroadcastShape(b, a) == shape);
  return shape;
}

TEST_CASE("shapes are aligned at their last axis, and an extent of 1 gives way") {
  CHECK(Both({2, 3}, {3}) == SymbolicShape{2, 3});
  CHECK(Both({2, 1}, {1, 3}) == SymbolicShape{2, 3});
  CHECK(Both({4, 1, 3}, {2, 1}) == SymbolicShape{4, 2, 3});
  CHECK(Both({0}, {1}) == SymbolicShape{0});
  CHECK(Both(SymbolicShape(Shape{}), {2}) == SymbolicShape{2});
  CHECK(ErrorOf([] {
          BroadcastShape({2, 3}, {2, 4});
        }).message() == "shapes [2, 3] and [2, 4] cannot be broadcast together: extents 3 and 4");
}

TEST_CASE("symbols and unknown extents stay in the result if they add information") {
  CHECK(Both({Sym("N"), 3}, {Sym("N"), 1}) == SymbolicShape{Sym("N"), 3});
  CHECK(Both({Sym("N")}, {1}) == SymbolicShape{Sym("N")});
  CHECK(Both({Sym("N")}, {4}) == SymbolicShape{4});
  CHECK(Both({Sym("N")}, {Sym("M")}) == SymbolicShape{Dim()});
  CHECK(Both({Dim()}, {Dim()}) == SymbolicShape{Dim()});
  CHECK(Both({Dim()}, {5}) == SymbolicShape{5});
  CHECK(Both({2}, SymbolicShape()) == SymbolicShape());
  CHECK(Both({Dim::AtMost(3)}, {1}) == SymbolicShape{Dim::AtMost(3)});
  CHECK(Both({Dim::AtMost(3)}, {5}) == SymbolicShape{5});  // where that is 1
  CHECK(Both({Dim::AtMost(3)}, {Dim::AtMost(5)}) == SymbolicShape{Dim::AtMost(5)});
  CHECK(Both({Dim::AtMost(3)}, {Dim()}) == SymbolicShape{Dim()});
  CHECK(MayBroadcastTo({Dim::AtMost(3)}, {5}));
  CHECK_FALSE(MayBroadcastTo({5}, {Dim::AtMost(3)}));
}

TEST_CASE("a shape may be broadcast to another unless an extent forbids it") {
  CHECK(MayBroadcastTo({3, 1}, {2, 3, 4}));
  CHECK(MayBroadcastTo({Sym("N")}, {4}));
  CHECK_FALSE(MayBroadcastTo({2, 3}, {3}));
  CHECK_FALSE(MayBroadcastTo({2}, {3}));
  CHECK_FALSE(MayBroadcastTo({3}, {1}));
}

TEST_CASE("strides are 0 along the axes that are repeated") {
  CHECK(BroadcastStrides({3, 1}, {2, 3, 4}) == Dims{0, 1, 0});
  CHECK(BroadcastStrides({2, 3}, {2, 3}) == Dims{3, 1});
  CHECK(BroadcastStrides({1, 3}, {1, 3}) == Dims{0, 1});
  CHECK(BroadcastStrides({}, {2}) == Dims{0});
  CHECK(ErrorOf([] { BroadcastStrides({2}, {3}); }).message() ==
        "shape [2] cannot be broadcast to [3]");
  CHECK(ErrorOf([] { BroadcastStrides({1, 2}, {2}); }).code() == ErrorCode::kInvalidArgument);
}

TEST_CASE("axes count from either end, each once") {
  CHECK(NormalizeAxis(-1, 3, "Op") == 2);
  CHECK(NormalizeAxis(0, 3, "Op") == 0);
  CHECK(ErrorOf([] { NormalizeAxis(3, 3, "Op"); }).message() ==
        "Op: axis 3 is outside a tensor of rank 3, expected -3 to 2");
  CHECK(AxisMask({-1, 0}, 3, "Op") == std::vector<char>{1, 0, 1});
  CHECK(ErrorOf([] {
          AxisMask({1, -1}, 2, "Op");
        }).message() == "Op: axis -1 is named twice in [1, -1]");
}

TEST_CASE("the begin of a row along an axis follows from the other axes") {
  const AxisSplit split({2, 3, 4}, 1);
  CHECK(split.outer == 2);
  CHECK(split.extent == 3);
  CHECK(split.inner == 4);
  CHECK(split.rows() == 8);
  Ints begins;
  for (int64_t row = 0; row < split.rows(); ++row) begins.push_back(split.Begin(row));
  CHECK(begins == Ints{0, 1, 2, 3, 12, 13, 14, 15});
}

}  // namespace
}  // namespace broadcast_test
