#include "opkit/core/symbolic_shape.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "support/error_of.hpp"

namespace symbolic_shape_test { namespace {

using opkit::Dim;
using opkit::ErrorCode;
using opkit::Shape;
using opkit::Sym;
using opkit::SymbolicShape;

TEST_CASE("an extent is a number, a symbol or unknown") {
  CHECK(Dim(3).is_known());
  CHECK(Dim(3).value() == 3);
  CHECK(Dim(0).is_known());
  CHECK(Sym("N").is_symbol());
  CHECK(Sym("N").symbol() == "N");
  CHECK(Dim().is_unknown());
  CHECK_FALSE(Sym("N").is_known());
  CHECK_FALSE(Dim().is_symbol());
  CHECK(Dim(3) == Dim(3));
  CHECK(Dim(3) != Dim(4));
  CHECK(Sym("N") == Sym("N"));
  CHECK(Sym("N") != Sym("M"));
  CHECK(Sym("N") != Dim());
  CHECK(ToString(Dim(3)) + ToString(Sym("N")) + ToString(Dim()) == "3N?");
}

TEST_CASE("extents are computed with: numbers where all are, else unknown") {
  const SymbolicShape x{Sym("N"), 28}, w{5, 3};
  CHECK(SymbolicShape{x[0], x[1] - w[0] + 1} == SymbolicShape{Sym("N"), 24});
  CHECK(Dim(x[1] * 2 / w[1]) == Dim(18));
  CHECK(Dim(w[1] - w[0] + 2) == Dim(0));  // what is between may be negative
  CHECK(Dim(x[0] + 1).is_unknown());
  CHECK(Dim(2 * Dim()).is_unknown());
  CHECK(ErrorOf([&] { static_cast<void>(Dim(w[1] - w[0])); }).message() == "extent -2 is negative");
  CHECK(ErrorOf([&] { static_cast<void>(Dim(w[1] / 0)); }).message() ==
        "an extent is computed as 3 / 0");
  const auto past = ErrorOf([&] { static_cast<void>(Dim(w[0] * INT64_MAX)); });
  CHECK(past.code() == ErrorCode::kOutOfRange);
  CHECK(past.message() == "an extent is computed as 5 * 9223372036854775807, which is past int64");
}

TEST_CASE("a negative extent, and the value of one that is not known, are errors") {
  const auto negative = ErrorOf([] { Dim(-1); });
  CHECK(negative.code() == ErrorCode::kInvalidArgument);
  CHECK(negative.message() == "extent -1 is negative");
  const auto symbol = ErrorOf([] { static_cast<void>(Sym("N").value()); });
  CHECK(symbol.code() == ErrorCode::kFailedPrecondition);
  CHECK(symbol.message() == "extent N is not known yet");
  CHECK(ErrorOf([] { static_cast<void>(Dim().value()); }).message() == "extent ? is not known yet");
}

TEST_CASE("merging extents keeps the most that is known, and finds contradictions") {
  CHECK(Dim::Merge(3, 3) == Dim(3));
  CHECK(Dim::Merge(3, 4) == std::nullopt);
  CHECK(Dim::Merge(3, Sym("N")) == Dim(3));
  CHECK(Dim::Merge(Sym("N"), 3) == Dim(3));
  CHECK(Dim::Merge(Dim(), 3) == Dim(3));
  CHECK(Dim::Merge(3, Dim()) == Dim(3));
  CHECK(Dim::Merge(Sym("N"), Dim()) == Sym("N"));
  CHECK(Dim::Merge(Dim(), Sym("N")) == Sym("N"));
  CHECK(Dim::Merge(Sym("N"), Sym("M")) == Sym("N"));
  CHECK(Dim::Merge(Dim(), Dim()) == Dim());
  CHECK_FALSE(Dim::Compatible(3, 4));
  CHECK(Dim::Compatible(3, Sym("N")));
  CHECK(Dim::Compatible(Sym("M"), Sym("N")));
}

TEST_CASE("an unknown extent may have a bound") {
  const Dim five = Dim::AtMost(5);
  CHECK(five.is_unknown());
  CHECK(five.most() == 5);
  CHECK(Dim(3).most() == 3);
  CHECK(Dim().most() == std::nullopt);
  CHECK(Sym("N").most() == std::nullopt);
  CHECK(ToString(five) == "<=5");
  CHECK(five != Dim());
  CHECK(five != Dim(5));
  CHECK(five == Dim::AtMost(Dim(5)));
  CHECK(five == Dim::AtMost(five));
  CHECK(Dim::AtMost(Sym("N")) == Dim());
  CHECK(ErrorOf([&] { static_cast<void>(five.value()); }).message() ==
        "extent <=5 is not known yet");
  CHECK(ErrorOf([] { Dim::AtMost(-1); }).message() == "an extent of at most -1 would be negative");
  // Merge keeps the facts of both dimensions and refuses contradictions.
  CHECK(Dim::Merge(five, Dim()) == five);
  CHECK(Dim::Merge(Dim(), five) == five);
  CHECK(Dim::Merge(five, Dim::AtMost(4)) == Dim::AtMost(4));
  CHECK(Dim::Merge(Dim::AtMost(4), five) == Dim::AtMost(4));
  CHECK(Dim::Merge(five, 5) == Dim(5));
  CHECK(Dim::Merge(0, five) == Dim(0));
  CHECK(Dim::Merge(five, 6) == std::nullopt);
  CHECK(Dim::Merge(6, five) == std::nullopt);
  CHECK(Dim::Merge(Sym("N"), five) == Sym("N"));
  CHECK_FALSE(Dim::Compatible(6, five));
  CHECK(Dim::Compatible(Dim::AtMost(9), five));
  // One of two.
  CHECK(Dim::Either(five, 7) == Dim::AtMost(7));
  CHECK(Dim::Either(7, 7) == Dim(7));
  CHECK(Dim::Either(Sym("N"), Sym("N")) == Sym("N"));
  CHECK(Dim::Either(five, Dim()) == Dim());
}

TEST_CASE("a bound passes through functions that grow with the extent, and is dropped elsewhere") {
  const Dim a = Dim::AtMost(10), b = Dim::AtMost(3);
  CHECK(Dim(a + b) == Dim::AtMost(13));
  CHECK(Dim(a + 2) == Dim::AtMost(12));
  CHECK(Dim(a - 4) == Dim::AtMost(6));
  CHECK(Dim(a - 11) == Dim());  // too small for any extent: the run says so
  CHECK(Dim(a * 3) == Dim::AtMost(30));
  CHECK(Dim(3 * a) == Dim::AtMost(30));
  CHECK(Dim(a / 3) == Dim::AtMost(3));
  CHECK(Dim((a + 2 - 3) / 2 + 1) == Dim::AtMost(5));  // the windows of a pool
  CHECK(Dim(20 - a) == Dim());
  CHECK(Dim(a - b) == Dim());
  CHECK(Dim(20 / a) == Dim());
  CHECK(Dim(0 - a * -1) == Dim());
  CHECK(Dim(a * b) == Dim());  // of expressions both might be negative; see Elements()
  CHECK(Dim(a + Dim()) == Dim());
  CHECK(Dim(a * INT64_MAX) == Dim());
}

TEST_CASE("the largest shape, its elements, and the tensors that fit it") {
  const SymbolicShape bounded{Dim::AtMost(4), 3, Dim::AtMost(2)};
  CHECK(ToString(bounded) == "[<=4, 3, <=2]");
  CHECK_FALSE(bounded.is_known());
  CHECK(bounded.Most() == Shape{4, 3, 2});
  CHECK(bounded.Elements() == Dim::AtMost(24));
  CHECK(SymbolicShape{4, 3}.Most() == Shape{4, 3});
  CHECK(SymbolicShape{4, 3}.Elements() == Dim(12));
  CHECK(SymbolicShape(Shape{}).Elements() == Dim(1));
  CHECK(SymbolicShape{4, Dim()}.Most() == std::nullopt);
  CHECK(SymbolicShape().Most() == std::nullopt);
  CHECK(SymbolicShape{4, Sym("N")}.Elements() == Dim());
  const Dim huge = Dim::AtMost(INT64_MAX / 2);
  CHECK(SymbolicShape{huge, 2}.Most().has_value());
  CHECK(SymbolicShape{huge, 3}.Most() == std::nullopt);
  CHECK(SymbolicShape{0, huge, 3}.Most() == std::nullopt);  // strides need the product
  CHECK(bounded.Allows(Shape{0, 3, 2}));
  CHECK(bounded.Allows(Shape{4, 3, 0}));
  CHECK_FALSE(bounded.Allows(Shape{5, 3, 2}));
  CHECK_FALSE(bounded.Allows(Shape{4, 2, 2}));
  CHECK_FALSE(bounded.Allows(Shape{4, 3}));
  CHECK(SymbolicShape{Sym("N"), Dim()}.Allows(Shape{7, 8}));
  CHECK(SymbolicShape().Allows(Shape{7}));
}

TEST_CASE("a symbolic shape may not even know its rank") {
  const SymbolicShape nothing;
  CHECK_FALSE(nothing.has_rank());
  CHECK_FALSE(nothing.is_known());
  CHECK(ToString(nothing) == "[rank unknown]");
  const auto error = ErrorOf([&] { static_cast<void>(nothing.rank()); });
  CHECK(error.code() == ErrorCode::kFailedPrecondition);
  CHECK(error.message() == "the rank is not known yet");
  CHECK(ErrorOf([&] { nothing.ToShape(); }).message() == "the rank is not known yet");
}

TEST_CASE("a symbolic shape of a known one leads back to it") {
  const SymbolicShape shape = Shape{2, 3};
  CHECK(shape.is_known());
  CHECK(shape.rank() == 2);
  CHECK(shape.ToShape() == Shape{2, 3});
  CHECK(shape.numel() == 6);
  CHECK(SymbolicShape(Shape{}).is_known());
  CHECK(SymbolicShape(Shape{}).ToShape() == Shape{});
  CHECK(SymbolicShape(Shape{}) != SymbolicShape());
}

TEST_CASE("a partly known shape prints its known extents and gives no Shape") {
  SymbolicShape shape{Sym("N"), 3, Dim()};
  CHECK(ToString(shape) == "[N, 3, ?]");
  CHECK(shape.rank() == 3);
  CHECK_FALSE(shape.is_known());
  CHECK(ErrorOf([&] { shape.ToShape(); }).message() == "extent N is not known yet");
  shape[0] = 2;
  shape[2] = 4;
  CHECK(shape.ToShape() == Shape{2, 3, 4});
  CHECK(SymbolicShape::OfRank(2) == SymbolicShape{Dim(), Dim()});
}

TEST_CASE("merging shapes goes extent by extent") {
  const SymbolicShape a{Sym("N"), 3, Dim()}, b{2, Dim(), Dim()};
  CHECK(SymbolicShape::Merge(a, b) == SymbolicShape{2, 3, Dim()});
  CHECK(SymbolicShape::Merge(a, SymbolicShape()) == a);
  CHECK(SymbolicShape::Merge(SymbolicShape(), a) == a);
  CHECK(SymbolicShape::Merge(a, {2, 4, 5}) == std::nullopt);
  CHECK(SymbolicShape::Merge(a, {2, 3}) == std::nullopt);
}

TEST_CASE("an axis counts from either end and must be there") {
  const SymbolicShape shape{2, Sym("N")};
  CHECK(shape[0] == Dim(2));
  CHECK(shape[-1] == Sym("N"));
  CHECK(ErrorOf([&] { static_cast<void>(shape[2]); }).code() == ErrorCode::kOutOfRange);
  CHECK(ErrorOf([] { static_cast<void>(SymbolicShape(Shape{})[0]); }).message() ==
        "axis 0 is outside [] of rank 0");
  CHECK(ErrorOf([] { static_cast<void>(SymbolicShape()[0]); }).code() ==
        ErrorCode::kFailedPrecondition);
}

}  // namespace
}  // namespace symbolic_shape_test
