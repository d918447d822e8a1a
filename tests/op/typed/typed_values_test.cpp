// The accessors of a kernel's parameters.
#include "opkit/op/typed/typed_values.hpp"

#include <doctest/doctest.h>

#include "op/typed_in_header.hpp"
#include "opkit/device/cpu_stream.hpp"
#include "support/error_of.hpp"

namespace {

using opkit::Attr;
using opkit::ErrorCode;
using opkit::In;
using opkit::OptionalIn;
using opkit::Out;
using opkit::Shape;

// The other half of what typed_operator_test.cpp says of operators in two places.
template <class Context>
void TypedTwice(Context&, In<"x", float>, Out<"y", float>) {}
OPKIT_OP(TypedTwice).SameShape<"x", "y">().Kernel<opkit::CPUStreamContext>();
template <class Context>
void TypedClash(Context&, In<"x", float>, Out<"y", float>, Attr<"a", int>) {}
OPKIT_OP(TypedClash).SameShape<"x", "y">().Kernel<opkit::CPUStreamContext>();

TEST_CASE("a view gives the extents and the elements in row-major order") {
  const float data[6] = {0, 1, 2, 3, 4, 5};
  const In<"x", float> x(data, Shape{2, 3});
  CHECK(x.data() == data);
  CHECK(x.size() == 6);
  CHECK(x.rank() == 2);
  CHECK(x.dim(0) == 2);
  CHECK(x.dim(-1) == 3);
  CHECK_THROWS_AS(x.dim(2), opkit::Error);
  CHECK_THROWS_AS(x.dim(-3), opkit::Error);
  CHECK(x[4] == 4);
  CHECK(x.shape() == Shape{2, 3});
  float sum = 0;
  for (float value : x) sum += value;
  CHECK(sum == 15);
}

TEST_CASE("a scalar has rank 0 and one element, an empty tensor none") {
  double value = 7;
  const Out<"y", double> scalar(&value, Shape{});
  CHECK(scalar.rank() == 0);
  CHECK(scalar.size() == 1);
  scalar[0] = 8;
  CHECK(value == 8);
  const Out<"y", double> empty(nullptr, Shape{2, 0});
  CHECK(empty.size() == 0);
  CHECK(empty.begin() == empty.end());
}

TEST_CASE("a view has at most eight axes") {
  const int data = 0;
  const In<"x", int> eight(&data, Shape{1, 1, 1, 1, 1, 1, 1, 1});
  CHECK(eight.rank() == 8);
  const opkit::Error error = ErrorOf([&] {
    In<"x", int>(&data, Shape{1, 1, 1, 1, 1, 1, 1, 1, 1});
  });
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(error.message() ==
        "typed operators take tensors of rank 0 to 8, found shape [1, 1, 1, 1, 1, 1, 1, 1, 1]; "
        "merge axes with View first");
}

TEST_CASE("an optional input is true when it is there, even when it is empty") {
  CHECK_FALSE(OptionalIn<"b", float>());
  CHECK(OptionalIn<"b", float>().size() == 0);
  CHECK(OptionalIn<"b", float>(nullptr, Shape{0}));
}

TEST_CASE("an attribute is used as the value it holds") {
  const Attr<"alpha", float> alpha(1.5f);
  CHECK(2 * alpha == 3.f);
  const Attr<"mode", std::string> mode("linear");
  CHECK(mode.value() == "linear");
  const std::string& text = mode;
  CHECK(&text == &mode.value());
}

TEST_CASE("values that kernels capture are trivially copied") {
  CHECK(std::is_trivially_copyable_v<In<"x", float>>);
  CHECK(std::is_trivially_copyable_v<OptionalIn<"x", float>>);
  CHECK(std::is_trivially_copyable_v<Out<"x", float>>);
  CHECK(std::is_trivially_copyable_v<Attr<"x", float>>);
}

}  // namespace
