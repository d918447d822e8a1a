// Constant, ConstantOfShape, EyeLike, Range.
#include "opkit/ops/generators.hpp"

#include "data_movement.hpp"

namespace generators_test {
using namespace opkit_tests;

namespace {

template <class T>
std::vector<T> Range(T start, T limit, T delta) {
  return Invoke("Range", {Tensor::Scalar(start), Tensor::Scalar(limit), Tensor::Scalar(delta)})[0]
      .template ToVector<T>();
}

TEST_CASE("Constant holds the value of its attribute") {
  CHECK(FloatsOf(Invoke("Constant", {}, {{"value", Counting({3})}})[0]) == Floats{0, 1, 2});
  CHECK(Invoke("Constant", {}, {{"value_int", 7}})[0].ToVector<int64_t>() == Ints{7});
  CHECK(Invoke("Constant", {}, {{"value_int", 7}})[0].rank() == 0);
  CHECK(Invoke("Constant", {}, {{"value_ints", {7, 8}}})[0].ToVector<int64_t>() == Ints{7, 8});
  CHECK(FloatsOf(Invoke("Constant", {}, {{"value_float", 0.5f}})[0]) == Floats{0.5f});
  CHECK(FloatsOf(Invoke("Constant", {}, {{"value_floats", {0.5f, 2.f}}})[0]) == Floats{0.5f, 2});
  CHECK(Contains(Refused("Constant", {}), "needs one of the arguments"));
  CHECK(Contains(Refused("Constant", {}, {{"value_int", 1}, {"value_float", 1.f}}),
                 "found [value_int, value_float]"));
}

TEST_CASE("ConstantOfShape repeats one element") {
  const Tensor zeros = Invoke("ConstantOfShape", {List({2, 2})})[0];
  CHECK(zeros.shape() == Shape{2, 2});
  CHECK(FloatsOf(zeros) == Floats{0, 0, 0, 0});
  const Tensor one = Tensor::From<int32_t>({1}, {1});
  CHECK(Invoke("ConstantOfShape", {List({3})}, {{"value", one}})[0].ToVector<int32_t>() ==
        std::vector<int32_t>{1, 1, 1});
  CHECK(Invoke("ConstantOfShape", {List({})})[0].shape() == Shape{});
  CHECK(Invoke("ConstantOfShape", {List({3, 0})})[0].shape() == Shape{3, 0});
  CHECK(Inferred("ConstantOfShape", {{DType::kInt64, {3}}}, {{"value", one}}) == "int32[?, ?, ?]");
  CHECK(Contains(Refused("ConstantOfShape", {List({-1})}), "negative extent"));
  CHECK(Contains(Refused("ConstantOfShape", {List({1})}, {{"value", Counting({2})}}),
                 "expected one element"));
}

TEST_CASE("ConstantOfShape repeats a packed element, and unused bits stay 0") {
  for (const DType dtype : {DType::kInt2, DType::kUInt4, DType::kFloat4E2M1}) {
    CAPTURE(dtype);
    Tensor one = RandomTensor(Shape{1}, dtype);
    detail::SetNumber(one, 0, 1);
    const Tensor y = Invoke("ConstantOfShape", {List({3, 3})}, {{"value", one}})[0];
    CHECK(y.dtype() == dtype);
    Tensor want = RandomTensor(Shape{3, 3}, dtype);
    for (int64_t i = 0; i < 9; ++i) detail::SetNumber(want, i, 1);
    CHECK(detail::SameBytes(y, want));
    CHECK(Invoke("ConstantOfShape", {List({0})}, {{"value", one}})[0].numel() == 0);
    CHECK(detail::SameBytes(Invoke("Constant", {}, {{"value", want}})[0], want));
  }
}

TEST_CASE("Range stops before its limit") {
  CHECK(Range<int64_t>(1, 8, 3) == Ints{1, 4, 7});
  CHECK(Range<int64_t>(1, 7, 3) == Ints{1, 4});
  CHECK(Range<int32_t>(10, 4, -2) == std::vector<int32_t>{10, 8, 6});
  CHECK(Range<int64_t>(3, 3, 1) == Ints{});
  CHECK(Range<int64_t>(3, 9, -1) == Ints{});
  CHECK(Range<float>(1, 2, 0.25f) == Floats{1, 1.25f, 1.5f, 1.75f});
  CHECK(Range<double>(0, -1, -0.5) == std::vector<double>{0, -0.5});
  CHECK(Range<float>(2, 1, 1) == Floats{});
}

TEST_CASE("Range at the ends of its type") {
  CHECK(Range<int64_t>(INT64_MIN, INT64_MAX, INT64_MAX) == Ints{INT64_MIN, -1, INT64_MAX - 1});
  CHECK(Range<int64_t>(INT64_MAX, INT64_MIN, INT64_MIN) == Ints{INT64_MAX, -1});
  CHECK(Range<int16_t>(32000, 32767, 500) == std::vector<int16_t>{32000, 32500});
  CHECK(Contains(ErrorOf([] { Range<int64_t>(INT64_MIN, INT64_MAX, 1); }).message(),
                 "endless, or more than a 64-bit count can hold"));
  CHECK(Contains(ErrorOf([] { Range<float>(0, INFINITY, 1); }).message(), "endless"));
  CHECK(Contains(ErrorOf([] { Range<float>(0, NAN, 1); }).message(), "endless"));
  CHECK(ErrorOf([] { Range<int64_t>(0, 5, 0); }).message() ==
        "Range: 'delta' is 0, expected another number");
}

TEST_CASE("Range has an extent where its limits are known, and takes scalars only") {
  const Known open(DType::kInt64, SymbolicShape(Shape{}));
  CHECK(Inferred("Range", {Tensor::Scalar<int64_t>(0), Tensor::Scalar<int64_t>(6),
                           Tensor::Scalar<int64_t>(2)}) == "int64[3]");
  CHECK(Inferred("Range", {Tensor::Scalar<int64_t>(0), open, Tensor::Scalar<int64_t>(2)}) ==
        "int64[?]");
  CHECK(Contains(Refused("Range", {Counting({2}), Counting({1}), Counting({1})}),
                 "'start' is float32[2]"));
}

TEST_CASE("EyeLike has ones on a diagonal") {
  const auto eye = [](const Shape& shape, int64_t k) {
    return FloatsOf(Invoke("EyeLike", {Counting(shape)}, {{"k", k}})[0]);
  };
  CHECK(eye({2, 3}, 0) == Floats{1, 0, 0, 0, 1, 0});
  CHECK(eye({2, 3}, 2) == Floats{0, 0, 1, 0, 0, 0});
  CHECK(eye({3, 2}, -1) == Floats{0, 0, 1, 0, 0, 1});
  CHECK(eye({2, 2}, INT64_MAX) == Floats{0, 0, 0, 0});
  CHECK(eye({2, 2}, INT64_MIN) == Floats{0, 0, 0, 0});
  CHECK(Invoke("EyeLike", {Counting({1, 2})}, {{"dtype", 7}})[0].ToVector<int64_t>() ==
        std::vector<int64_t>{1, 0});
  CHECK(Contains(Refused("EyeLike", {{2}}), "EyeLike: the input has shape [2], expected rank 2"));
  CHECK(Contains(Refused("EyeLike", {{2, 2}}, {{"dtype", 8}}), "EyeLike: dtype=8 is not"));
  CheckNode(OperatorDef("EyeLike", {"x"}, {"y"}, {{"k", 1}}), {Counting({2, 3})});
}

TEST_CASE("the operators keep the promises of their schemas") {
  CheckNode(OperatorDef("ConstantOfShape", {"shape"}, {"y"}), {List({2, 3})});
  CheckNode(OperatorDef("Range", {"start", "limit", "delta"}, {"y"}),
            {Tensor::Scalar(1.f), Tensor::Scalar(5.f), Tensor::Scalar(0.5f)});
}

}  // namespace
}  // namespace generators_test
