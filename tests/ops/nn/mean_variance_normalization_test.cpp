// MeanVarianceNormalization.
#include "opkit/ops/nn/mean_variance_normalization.hpp"

#include "../data_movement.hpp"
#include "opkit/ops/generators.hpp"
#include "opkit/ops/math/arithmetic.hpp"
#include "opkit/ops/math/reduce.hpp"
#include "opkit/ops/math/unary.hpp"

namespace mean_variance_normalization_test {
using namespace opkit_tests;

namespace {

Floats Normalized(const Tensor& x, Arguments args = {}) {
  return FloatsOf(Invoke("MeanVarianceNormalization", {x}, std::move(args))[0]);
}

TEST_CASE("elements along the axes get the mean 0 and the variance 1") {
  const Tensor x = Tensor::From<float>({2, 2}, {1, 3, 10, 30});
  CHECK(Normalized(x, {{"axes", {1}}}) == Floats{-1, 1, -1, 1});
  CHECK(Normalized(x, {{"axes", {-2}}}) == Floats{-1, -1, 1, 1});
  CHECK(Normalized(Tensor::From<float>({3}, {7, 7, 7}), {{"axes", {0}}}) == Floats{0, 0, 0});
}

TEST_CASE("without axes each channel of a batch of images is normalized") {
  const Tensor x = Tensor::From<float>({2, 2, 1, 1}, {1, 10, 3, 30});
  CHECK(Normalized(x) == Floats{-1, -1, 1, 1});
  CHECK(Contains(Refused("MeanVarianceNormalization", {{2, 2}}), "axis 2 is outside"));
  CHECK(Contains(Refused("MeanVarianceNormalization", {{2, 2}}, {{"axes", {1, -1}}}),
                 "is named twice"));
}

TEST_CASE("numbers far from 0 keep their digits") {
  const Tensor x = Tensor::From<double>({2}, {1e9, 1e9 + 2});
  CHECK(Invoke("MeanVarianceNormalization", {x}, {{"axes", {0}}})[0].ToVector<double>()[1] ==
        doctest::Approx(1));
}

TEST_CASE("the operator and its gradient keep the promises of the schema") {
  CheckNode(OperatorDef("MeanVarianceNormalization", {"x"}, {"y"}),
            {RandomTensor({2, 3, 2, 2}, DType::kFloat32)});
  CHECK(HasGradient("MeanVarianceNormalization"));
}

}  // namespace
}  // namespace mean_variance_normalization_test
