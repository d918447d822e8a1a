// LinearClassifier and LinearRegressor.
#include "opkit/ops/ml/linear.hpp"

#include "../data_movement.hpp"

namespace linear_test {
using namespace opkit_tests;

namespace {

const std::string kClassifier = "ai.onnx.ml.LinearClassifier";
const std::string kRegressor = "ai.onnx.ml.LinearRegressor";

bool Near(const Floats& found, const Floats& expected) {
  bool near = found.size() == expected.size();
  for (size_t i = 0; near && i < found.size(); ++i) near = std::abs(found[i] - expected[i]) < 1e-6f;
  return near;
}
Tensor Rows() { return Tensor::From<float>({3, 2}, {1, -2, -1, .5f, 0, 0}); }

TEST_CASE("a classifier returns the class of the highest score") {
  const auto run = [](const char* transform) {
    return Invoke(kClassifier, {Rows()},
                  {{"coefficients", Floats{.5f, .25f, -.25f, .5f, 0, 0}},
                   {"intercepts", Floats{.125f, .25f, .375f}},
                   {"classlabels_ints", Ints{3, 4, 9}},
                   {"post_transform", transform}});
  };
  const auto plain = run("NONE");
  CHECK(plain[0].ToVector<int64_t>() == Ints{9, 4, 9});
  CHECK(FloatsOf(plain[1]) == Floats{.125f, -1, .375f, -.25f, .75f, .375f, .125f, .25f, .375f});
  const auto logistic = run("LOGISTIC");
  CHECK(logistic[0].ToVector<int64_t>() == Ints{9, 4, 9});
  CHECK(std::abs(FloatsOf(logistic[1])[0] - 0.5312094f) < 1e-6f);
}

TEST_CASE("with two classes and the coefficients of one, the other has the complement") {
  const auto run = [](const char* transform) {
    return Invoke(kClassifier, {Rows()},
                  {{"coefficients", Floats{.5f, .25f}},
                   {"intercepts", Floats{.125f}},
                   {"classlabels_ints", Ints{3, 4}},
                   {"post_transform", transform}});
  };
  CHECK(run("NONE")[0].ToVector<int64_t>() == Ints{4, 3, 4});
  CHECK(FloatsOf(run("NONE")[1]) == Floats{.875f, .125f, 1.25f, -.25f, .875f, .125f});
  CHECK(FloatsOf(run("SOFTMAX")[1]) == FloatsOf(run("NONE")[1]));
  CHECK(Near(FloatsOf(run("LOGISTIC")[1]),
             {0.4687906f, 0.5312094f, 0.5621765f, 0.4378235f, 0.4687906f, 0.5312094f}));
}

TEST_CASE("a regressor adds for each target, over rows of every type") {
  const Arguments args = {
      {"coefficients", Floats{.5f, .25f, 1, 2}}, {"intercepts", Floats{0, 10}}, {"targets", 2}};
  CHECK(FloatsOf(Invoke(kRegressor, {Rows()}, args)[0]) == Floats{0, 7, -.375f, 10, 0, 10});
  CHECK(FloatsOf(Invoke(kRegressor, {Tensor::From<int64_t>({2}, {2, 4})}, args)[0]) ==
        Floats{2, 20});
  CHECK(FloatsOf(Invoke(kRegressor, {Tensor::From<int32_t>({1, 2}, {2, 4})}, args)[0]) ==
        Floats{2, 20});
  CHECK(FloatsOf(Invoke(kRegressor, {Tensor::From<double>({1, 2}, {2, 4})}, args)[0]) ==
        Floats{2, 20});
  CHECK(Inferred(kRegressor, {{Sym("N"), 2}}, args) == "float32[N, 2]");
}

TEST_CASE("lists that do not fit are refused") {
  const auto why = [](Arguments args) {
    return ErrorOf([&] { Invoke(kRegressor, {Rows()}, args); }).message();
  };
  CHECK(Contains(why({{"coefficients", Floats{1, 2, 3}}, {"targets", 2}}), "'coefficients' has 3"));
  CHECK(Contains(why({{"coefficients", Floats{1, 2, 3}}}),
                 "have 2 columns, but there are coefficients for 3"));
  CHECK(Contains(why({{"coefficients", Floats{1, 2}}, {"intercepts", Floats{1, 2}}}),
                 "'intercepts' has 2 elements"));
  CHECK(Contains(Refused(kClassifier, {{3, 2}}, {{"coefficients", Floats{1, 2}}}, 2),
                 "expected labels in one of them"));
}

TEST_CASE("the operators keep the promises of their schemas") {
  CheckNode(OperatorDef(kRegressor, {"x"}, {"y"}, {{"coefficients", Floats{.5f, .25f}}}), {Rows()});
  CheckNode(OperatorDef(kClassifier, {"x"}, {"labels", "scores"},
                        {{"coefficients", Floats{.5f, .25f}},
                         {"intercepts", Floats{.125f}},
                         {"classlabels_ints", Ints{3, 4}}}),
            {Rows()});
}

}  // namespace
}  // namespace linear_test
