#include "opkit/core/symbolic_shape.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "support/error_of.hpp"

namespace symbolic_shape_test {
namespace {

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

TEST_CASE("a partly known shape prints what it knows and gives no Shape") {
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
