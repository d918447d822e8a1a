#include "opkit/op/check/check_data.hpp"

#include <doctest/doctest.h>

#include <cmath>

namespace check_data_test {
using namespace opkit;
using detail::Difference;
using detail::GetNumber;
using detail::SetNumber;
using opkit::RandomTensor;

namespace {

TEST_CASE("every dtype is read and written as numbers") {
  for (int i = 1; i < static_cast<int>(DType::kString); ++i) {
    const auto dtype = static_cast<DType>(i);
    CAPTURE(dtype);
    Tensor tensor({2}, dtype);
    if (dtype == DType::kFloat8E8M0) {  // it has no 0
      SetNumber(tensor, 1, 4);
      CHECK(GetNumber(tensor, 1) == 4);
      continue;
    }
    const int64_t last = 2 * detail::NumbersPerElement(dtype) - 1;
    SetNumber(tensor, 0, 0);
    SetNumber(tensor, last, 1);
    CHECK(GetNumber(tensor, 0) == 0);
    CHECK(GetNumber(tensor, last) == 1);
  }
  CHECK(detail::NumbersPerElement(DType::kComplex64) == 2);
  Tensor narrow({1}, DType::kUInt8);
  SetNumber(narrow, 0, 257);
  CHECK(GetNumber(narrow, 0) == 1);
}

TEST_CASE("test data is the same for a seed, of both signs, and away from 0") {
  const Tensor x = RandomTensor(Shape{40, 5}, DType::kFloat32, 3);
  CHECK(detail::SameBytes(x, RandomTensor(Shape{40, 5}, DType::kFloat32, 3)));
  CHECK_FALSE(detail::SameBytes(x, RandomTensor(Shape{40, 5}, DType::kFloat32, 4)));
  int negative = 0;
  for (const float value : x.ToVector<float>()) {
    CHECK(std::fabs(value) >= 0.25f);
    CHECK(std::fabs(value) < 1.25f);
    negative += value < 0;
  }
  CHECK(negative > 50);
  CHECK(negative < 150);
  for (const int8_t value : RandomTensor(Shape{100}, DType::kInt8, 1).ToVector<int8_t>()) {
    CHECK(value >= 1);
    CHECK(value <= 5);
  }
}

TEST_CASE("test data of a dtype of 2 to 8 bits has only numbers that it can hold") {
  for (int i = static_cast<int>(DType::kInt2); i < static_cast<int>(DType::kString); ++i) {
    const auto dtype = static_cast<DType>(i);
    CAPTURE(dtype);
    const Tensor x = RandomTensor(Shape{7, 5}, dtype, 3);
    CHECK(detail::SameBytes(x, RandomTensor(Shape{7, 5}, dtype, 3)));
    double low = 9, high = -9;
    for (int64_t k = 0; k < x.numel(); ++k) {
      low = std::fmin(low, GetNumber(x, k));
      high = std::fmax(high, GetNumber(x, k));
    }
    const std::string name = ToString(dtype);
    const bool is_integer = name.find("int") != std::string::npos;
    CHECK((low < 0) == (!is_integer && dtype != DType::kFloat8E8M0));
    CHECK(low > -1.3);
    CHECK(high >= 1);
    CHECK(high <= (is_integer ? 5 : 2));
  }
  Tensor a = RandomTensor(Shape{5}, DType::kInt4), b = a.Contiguous();
  static_cast<uint8_t*>(b.raw_mutable_data())[2] |= 0xf0;  // behind the last element
  CHECK(Difference(a, b, 0).empty());
  SetNumber(b, 3, -8);
  SetNumber(a, 3, 1);
  CHECK(Difference(a, b, 0) == "element [3] is 1 instead of -8");
}

TEST_CASE(
    "a difference is reported by its first element, both values, and the number of elements") {
  const Tensor a = Tensor::From<float>({2, 2}, {1, 2, 3, 4});
  CHECK(Difference(a, a, 0).empty());
  CHECK(Difference(a, Tensor::From<float>({2, 2}, {1, 2, 5, 4}), 0) ==
        "element [1, 0] is 3 instead of 5");
  CHECK(Difference(a, Tensor::From<float>({2, 2}, {1, 7, 5, 4}), 0) ==
        "element [0, 1] is 2 instead of 7 (2 differ)");
  CHECK(Difference(a, Tensor::From<double>({4}, {1, 2, 3, 4}), 0) ==
        "it is float32[2, 2] instead of float64[4]");
}

TEST_CASE("a tolerance is relative above 1; without one bits count, and any NaN is another") {
  const auto one = [](float value) { return Tensor::From<float>({1}, {value}); };
  CHECK(Difference(one(1000), one(1001), 2e-3).empty());
  CHECK_FALSE(Difference(one(1000), one(1001), 5e-4).empty());
  CHECK(Difference(one(0.001f), one(0.002f), 2e-3).empty());
  CHECK_FALSE(Difference(one(0.f), one(-0.f), 0).empty());
  CHECK(Difference(one(0.f), one(-0.f), 1e-9).empty());
  CHECK(Difference(one(NAN), one(-NAN), 0).empty());
  CHECK_FALSE(Difference(one(NAN), one(1), 1).empty());
}

}  // namespace
}  // namespace check_data_test
