#include "opkit/core/shape.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "support/error_of.hpp"
#include "support/lists.hpp"

namespace shape_test { namespace {

using opkit::Dims;
using opkit::ErrorCode;
using opkit::Shape;

Dims MakeDims(const Ints& values) { return Dims(values); }
Ints Values(const Dims& dims) { return {dims.begin(), dims.end()}; }

TEST_CASE("dims are values, inside six entries and beyond") {
  for (int size : {0, 1, 6, 7, 20}) {
    CAPTURE(size);
    Ints values;
    for (int i = 0; i < size; ++i) values.push_back(i * 10);
    const Dims dims = MakeDims(values);
    CHECK(dims.size() == size);
    CHECK(dims.empty() == (size == 0));
    CHECK(Values(dims) == values);
    Dims copy = dims;
    CHECK(copy == dims);
    Dims moved = std::move(copy);
    CHECK(moved == dims);
    CHECK(copy.empty());
    for (int before : {0, 3, 9}) {
      Dims assigned = MakeDims(Ints(static_cast<size_t>(before), 1));
      assigned = dims;
      CHECK(assigned == dims);
      Dims taken = MakeDims(Ints(static_cast<size_t>(before), 1));
      Dims source = dims;
      taken = std::move(source);
      CHECK(taken == dims);
    }
    auto& same = moved;
    moved = same;
    CHECK(moved == dims);
  }
}

TEST_CASE("changing a copy of dims leaves the original") {
  for (size_t size : {2, 8}) {
    const Dims original = MakeDims(Ints(size, 5));
    Dims copy = original;
    copy[1] = 9;
    CHECK(original[1] == 5);
    CHECK(copy[1] == 9);
    CHECK(copy != original);
  }
  CHECK(MakeDims({1}) != MakeDims({1, 1}));
}

TEST_CASE("a shape knows its rank and element count; a scalar has one element") {
  CHECK(Shape().rank() == 0);
  CHECK(Shape().numel() == 1);
  CHECK(Shape{}.numel() == 1);
  CHECK(Shape{2, 3, 4}.rank() == 3);
  CHECK(Shape{2, 3, 4}.numel() == 24);
  CHECK(Shape{2, 0, 4}.numel() == 0);
  CHECK(Shape(Ints{5, 6}).numel() == 30);
  CHECK(Shape{2, 3, 4}.NumelBetween(1, 3) == 12);
  CHECK(Shape{2, 3, 4}.NumelBetween(1, 1) == 1);
  CHECK(Shape{2, 3}.vec() == Ints{2, 3});
  CHECK(ToString(Shape{2, 3}) == "[2, 3]");
  CHECK(ToString(Shape{}) == "[]");
  CHECK(Shape{2, 3} == Shape(Ints{2, 3}));
  CHECK(Shape{2, 3} != Shape{3, 2});
  CHECK(Shape{} != Shape{1});
}

TEST_CASE("axes count from either end and are checked") {
  const Shape shape{2, 3, 4};
  CHECK(shape.dim(0) == 2);
  CHECK(shape.dim(-1) == 4);
  CHECK(shape.Axis(-3) == 0);
  for (int axis : {3, -4, 1000}) {
    const auto error = ErrorOf([&] { shape.dim(axis); });
    CHECK(error.code() == ErrorCode::kOutOfRange);
    CHECK(error.message() == opkit::StrCat("axis ", axis, " is outside [2, 3, 4] of rank 3"));
  }
  CHECK(ErrorOf([] { Shape{}.dim(0); }).message() == "axis 0 is outside [] of rank 0");
}

TEST_CASE("an index counts from either end and is checked, of shapes and of dims") {
  const Shape shape{2, 3, 4}, scalar;
  Dims dims{5, 6};
  CHECK(shape[-1] == 4);
  CHECK(dims[-2] == 5);
  dims[-1] = 7;
  CHECK(dims == Dims{5, 7});
  const auto refused = [](auto&& list, int index, const char* message) {
    const auto error = ErrorOf([&] { static_cast<void>(list[index]); });
    CHECK(error.code() == ErrorCode::kOutOfRange);
    CHECK(error.message() == message);
  };
  refused(shape, 5, "axis 5 is outside [2, 3, 4] of rank 3");
  refused(scalar, -1, "axis -1 is outside [] of rank 0");
  refused(dims, 2, "axis 2 is outside [5, 7] of rank 2");
}

TEST_CASE("dense strides are row-major, and defined beside an extent of 0") {
  CHECK(Values(Shape{2, 3, 4}.DenseStrides()) == Ints{12, 4, 1});
  CHECK(Values(Shape{}.DenseStrides()).empty());
  CHECK(Values(Shape{2, 0, 4}.DenseStrides()) == Ints{4, 4, 1});
}

TEST_CASE("strides are dense if they matter: those of extents of 1 or of an empty tensor do not") {
  CHECK(Shape{2, 3}.IsDense(MakeDims({3, 1})));
  CHECK_FALSE(Shape{2, 3}.IsDense(MakeDims({4, 1})));
  CHECK_FALSE(Shape{2, 3}.IsDense(MakeDims({1, 2})));
  CHECK(Shape{1, 3, 1}.IsDense(MakeDims({77, 1, -5})));
  CHECK(Shape{2, 0}.IsDense(MakeDims({9, 9})));
  CHECK(Shape{}.IsDense(Dims()));
  CHECK_FALSE(Shape{2}.IsDense(Dims()));
}

TEST_CASE("a moved-from shape is a scalar's") {
  Shape from{2, 3};
  const Shape to = std::move(from);
  CHECK(to == Shape{2, 3});
  CHECK(from == Shape{});  // NOLINT: what a moved-from value is, is the point
  CHECK(from.numel() == 1);
}

TEST_CASE("a negative extent is an error that names the axis") {
  const auto error = ErrorOf([] { Shape{2, -3, 4}; });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(error.message() == "shape [2, -3, 4] has the negative extent -3 at axis 1");
  CHECK(ErrorOf([] { Shape{0, INT64_MIN}; }).code() == ErrorCode::kInvalidArgument);
}

TEST_CASE("an element count past int64 is an error, also where an extent of 0 hides it") {
  CHECK(Shape{INT64_MAX}.numel() == INT64_MAX);
  CHECK(Shape{INT64_C(1) << 31, INT64_C(1) << 31}.numel() == INT64_C(1) << 62);
  const auto error = ErrorOf([] { Shape{INT64_C(1) << 32, INT64_C(1) << 31}; });
  CHECK(error.code() == ErrorCode::kOutOfRange);
  CHECK(error.message() ==
        "shape [4294967296, 2147483648] has more elements than a 64-bit count can hold");
  CHECK(ErrorOf([] { Shape{INT64_MAX, 2}; }).code() == ErrorCode::kOutOfRange);
  CHECK(ErrorOf([] { Shape{INT64_MAX, 0, 2}; }).code() == ErrorCode::kOutOfRange);
  CHECK(ErrorOf([] {
          Shape{INT64_C(1) << 32, INT64_C(1) << 32};
        }).code() == ErrorCode::kOutOfRange);  // wraps to 0
}

}  // namespace
}  // namespace shape_test
