#include "support/compare.hpp"

#include <doctest/doctest.h>

#include <limits>

using opkit::Tensor;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::string OfFloats(std::initializer_list<float> found, std::initializer_list<float> expected) {
  return Difference(Tensor::From<float>({static_cast<int64_t>(found.size())}, found),
                    Tensor::From<float>({static_cast<int64_t>(expected.size())}, expected));
}

}  // namespace

TEST_CASE("Difference requires the expected dtype and shape") {
  const Tensor floats = Tensor::From<float>({2, 1}, {1, 2});
  CHECK(Difference(floats, Tensor::From<double>({2, 1}, {1, 2})) ==
        "found float32[2, 1] on cpu, expected float64[2, 1] on cpu");
  CHECK(Difference(floats, Tensor::From<float>({2}, {1, 2})) ==
        "found float32[2, 1] on cpu, expected float32[2] on cpu");
  CHECK(Difference(floats, floats) == "");
}

TEST_CASE("Difference lets floats differ by the tolerance and not by more") {
  CHECK(OfFloats({1.00099f, 0, -2000}, {1, 9e-8f, -2001.9f}) == "");
  CHECK(OfFloats({1.5f}, {1}) == "element [0]: found 1.5, expected 1 (1 of 1 differ)");
  CHECK(OfFloats({1.0011f}, {1}) != "");
  CHECK(OfFloats({0}, {2e-7f}) != "");
  // The tolerance is a part of what is expected, not of what is found.
  CHECK(OfFloats({1001.0005f}, {1000}) != "");
  CHECK(Difference(Tensor::Scalar(1.05), Tensor::Scalar(1.0), {.rtol = 0.1, .atol = 0}) == "");
}

TEST_CASE("Difference takes NaN for NaN and an infinity for itself alone") {
  CHECK(OfFloats({kNan, kInf, -kInf}, {kNan, kInf, -kInf}) == "");
  CHECK(OfFloats({1, kNan}, {1, 1}) == "element [1]: found nan, expected 1 (1 of 2 differ)");
  CHECK(OfFloats({1}, {kNan}) != "");
  CHECK(OfFloats({kInf}, {-kInf}) != "");
  CHECK(OfFloats({std::numeric_limits<float>::max()}, {kInf}) != "");
  CHECK(OfFloats({kInf}, {1}) != "");
}

TEST_CASE("Difference requires equal integers and bools") {
  const int64_t large = int64_t{1} << 60;
  CHECK(Difference(Tensor::From<int64_t>({2, 2}, {1, 2, large, 4}),
                   Tensor::From<int64_t>({2, 2}, {1, 2, large + 1, 5})) ==
        "element [1, 0]: found 1152921504606846976, expected 1152921504606846977 (2 of 4 differ)");
  CHECK(Difference(Tensor::Scalar(uint8_t{200}), Tensor::Scalar(uint8_t{201})) ==
        "element []: found 200, expected 201 (1 of 1 differ)");
  CHECK(Difference(Tensor::Scalar(true), Tensor::Scalar(false)) != "");
  CHECK(Difference(Tensor::Scalar(opkit::float16(1)), Tensor::Scalar(opkit::float16(2))) ==
        "element []: found 1, expected 2 (1 of 1 differ)");
}

TEST_CASE("Difference reads tensors with strides and without elements") {
  const Tensor matrix = Tensor::From<float>({2, 2}, {1, 2, 3, 4});
  CHECK(Difference(matrix.Permute({1, 0}), Tensor::From<float>({2, 2}, {1, 3, 2, 4})) == "");
  const Tensor empty({0, 3}, opkit::DType::kFloat32);
  CHECK(Difference(empty, empty) == "");
}
