// SVMRegressor.
#include "opkit/ops/ml/svm.hpp"

#include "../data_movement.hpp"

namespace svm_test {
using namespace opkit_tests;

namespace {

const std::string kRegressor = "ai.onnx.ml.SVMRegressor";

Tensor Rows() { return Tensor::From<float>({3, 2}, {1, -2, -1, .5f, 0, .3f}); }
Arguments Vectors(const char* kernel) {
  return {{"support_vectors", Floats{.5f, 1, -1, .25f, .3f, -.6f}},
          {"coefficients", Floats{.7f, -.4f, .2f}},
          {"n_supports", 3},
          {"rho", Floats{.15f}},
          {"kernel_type", kernel},
          {"kernel_params", Floats{.5f, .1f, 2}}};
}

// The values are those of ONNX Runtime 1.31.
TEST_CASE("each kernel function gives ONNX Runtime's values") {
  const auto near = [](const char* kernel, const Floats& expected) {
    const Tensor y = Invoke(kRegressor, {Rows()}, Vectors(kernel))[0];
    CHECK(y.shape() == Shape{3, 1});
    const Floats found = FloatsOf(y);
    for (size_t i = 0; i < 3; ++i) CHECK(std::abs(found[i] - expected[i]) < 1e-6f);
  };
  near("LINEAR", {0, -.42f, .294f});
  near("POLY", {.42125f, -.0105625f, .1862075f});
  near("RBF", {.21130723f, .00977413f, .51873046f});
  near("SIGMOID", {.11671294f, -.05171739f, .268787f});
}

TEST_CASE("one class gives the sign, and no support vectors a linear model") {
  Arguments args = Vectors("LINEAR");
  args.Set("one_class", 1);
  args.Set("rho", Floats{.2f});
  CHECK(FloatsOf(Invoke(kRegressor, {Rows()}, args)[0]) == Floats{1, -1, 1});
  const Tensor y = Invoke(kRegressor, {Tensor::From<int64_t>({2, 2}, {1, 2, 3, 4})},
                          {{"coefficients", Floats{.5f, .25f}}, {"rho", Floats{1}}})[0];
  CHECK(FloatsOf(y) == Floats{2, 3.5f});
}

TEST_CASE("lists that do not fit are refused") {
  const auto why = [](const char* name, const Attribute& value) {
    Arguments args = Vectors("RBF");
    args.Set(name, value);
    return ErrorOf([&] { Invoke(kRegressor, {Rows()}, args); }).message();
  };
  CHECK(Contains(why("n_supports", 4), "'n_supports' is 4"));
  CHECK(Contains(why("coefficients", Floats{1}), "there are 1 coefficients"));
  CHECK(Contains(why("support_vectors", Floats{1, 2, 3}), "but the support vectors 1"));
  CHECK(Contains(why("rho", Floats{1, 2}), "'rho' has 2 elements"));
  CHECK(Contains(why("kernel_params", Floats{1}), "expected gamma, coef0 and degree"));
}

TEST_CASE("the operator keeps the promises of its schema") {
  CheckNode(OperatorDef(kRegressor, {"x"}, {"y"}, Vectors("RBF")), {Rows()});
}

}  // namespace
}  // namespace svm_test
