// SVMRegressor and SVMClassifier.
#include "opkit/ops/ml/svm.hpp"

#include "../data_movement.hpp"

namespace svm_test {
using namespace opkit_tests;

namespace {

const std::string kRegressor = "ai.onnx.ml.SVMRegressor";
const std::string kClassifier = "ai.onnx.ml.SVMClassifier";

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

Arguments ThreeClasses(const char* kernel) {
  return {{"support_vectors", Floats{.5f, 1, -1, .25f, .3f, -.6f, .8f, .1f}},
          {"coefficients", Floats{.7f, -.4f, .2f, .9f, -.3f, .6f, -.8f, .5f}},
          {"vectors_per_class", Ints{1, 2, 1}},
          {"rho", Floats{.15f, -.2f, .1f}},
          {"kernel_type", kernel},
          {"kernel_params", Floats{.5f, .1f, 2}},
          {"classlabels_ints", Ints{4, -9, 2}}};
}
Arguments TwoClasses(const char* kernel) {
  Arguments args = ThreeClasses(kernel);
  args.Set("coefficients", Floats{.7f, -.4f, .2f, .9f});
  args.Set("vectors_per_class", Ints{1, 3});
  args.Set("rho", Floats{.15f});
  args.Set("classlabels_ints", Ints{4, -9});
  return args;
}
void CheckScores(const Tensor& scores, const Floats& expected) {
  const Floats found = FloatsOf(scores);
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) CHECK(std::abs(found[i] - expected[i]) < 1e-6f);
}

// The values are those of ONNX Runtime 1.31.
TEST_CASE("pairs of classes have scores and vote for a class") {
  const auto check = [](const char* kernel, const Ints& labels, const Floats& scores) {
    const auto out = Invoke(kClassifier, {Rows()}, ThreeClasses(kernel));
    CHECK(out[0].ToVector<int64_t>() == labels);
    CHECK(out[1].shape() == Shape{3, 3});
    CheckScores(out[1], scores);
  };
  check("POLY", {2, -9, 4},
        {.4212500f, -.1827500f, -.1445000f, -.0105625f, -.1349375f, .3691563f, .1862075f,
         -.2068475f, .1178762f});
  check("RBF", {2, 4, 4},
        {.2113072f, -.1056804f, -.0745121f, .0097741f, -.1215363f, .5852254f, .5187304f, .2333729f,
         .3092464f});
  check("SIGMOID", {4, -9, 4},
        {.1167129f, .3134550f, -.6058831f, -.0517174f, -.4713444f, .4717796f, .2687870f, -.1704295f,
         .2312321f});
}

TEST_CASE("the score of two classes becomes two numbers") {
  const auto scores = [](const char* transform, const Floats& expected) {
    Arguments args = TwoClasses("RBF");
    args.Set("post_transform", transform);
    const auto out = Invoke(kClassifier, {Rows()}, args);
    CHECK(out[0].ToVector<int64_t>() == Ints{4, 4, 4});
    CheckScores(out[1], expected);
  };
  scores("NONE", {-.3085680f, .3085680f, -.1741893f, .1741893f, -1.1593237f, 1.1593237f});
  scores("LOGISTIC", {.4234643f, .5765357f, .4565624f, .5434376f, .2387902f, .7612098f});
  scores("SOFTMAX", {.6914320f, .3085680f, .8258106f, .1741893f, -.1593237f, 1.1593237f});
}

TEST_CASE("probabilities of pairs are coupled, and labels can be strings") {
  Arguments args = ThreeClasses("RBF");
  args.Set("prob_a", Floats{-1.5f, -.7f, -2});
  args.Set("prob_b", Floats{.25f, 0, -.1f});
  auto out = Invoke(kClassifier, {Rows()}, args);
  CHECK(out[0].ToVector<int64_t>() == Ints{2, 4, 4});
  CheckScores(out[1], {.3317073f, .3210657f, .3472270f, .3076240f, .4905570f, .2018189f, .4246098f,
                       .3247634f, .2506268f});
  args = TwoClasses("POLY");
  args.Remove("classlabels_ints");
  args.Set("classlabels_strings", std::vector<std::string>{"no", "yes"});
  args.Set("prob_a", Floats{-1.5f});
  args.Set("prob_b", Floats{.25f});
  out = Invoke(kClassifier, {Rows()}, args);
  CHECK(out[0].ToVector<std::string>() == std::vector<std::string>{"no", "no", "no"});
  CheckScores(out[1], {.6430982f, .3569019f, .4591300f, .5408700f, .5117890f, .4882111f});
}

TEST_CASE("a classifier without support vectors is linear") {
  const auto labels = [](const Floats& rho, const Floats& coefficients) {
    const auto out =
        Invoke(kClassifier, {Rows()},
               {{"coefficients", coefficients}, {"rho", rho}, {"classlabels_ints", Ints{4, -9}}});
    CHECK(out[1].shape() == Shape{3, 2});
    return out[0].ToVector<int64_t>();
  };
  CheckScores(Invoke(kClassifier, {Rows()},
                     {{"coefficients", Floats{.5f, -1, .25f, .5f}},
                      {"rho", Floats{.1f}},
                      {"classlabels_ints", Ints{4, -9}}})[1],
              {2.6f, -.65f, -.9f, .1f, -.2f, .25f});
  CHECK(labels({.1f}, {.5f, -1, .25f, .5f}) == Ints{-9, -9, -9});
  CHECK(labels({.1f, .1f}, {.5f, -1, .25f, .5f}) == Ints{4, -9, -9});
}

TEST_CASE("lists of a classifier that do not fit are refused") {
  const auto why = [](const char* name, const Attribute& value) {
    Arguments args = ThreeClasses("RBF");
    args.Set(name, value);
    return ErrorOf([&] { Invoke(kClassifier, {Rows()}, args); }).message();
  };
  CHECK(Contains(why("vectors_per_class", Ints{1, 3}), "'vectors_per_class' has 2 elements for 3"));
  CHECK(
      Contains(why("vectors_per_class", Ints{5, -1, 0}), "'vectors_per_class' has the element -1"));
  CHECK(
      Contains(why("vectors_per_class", Ints{1, 1, 1}), "'vectors_per_class' is 3, but there are"));
  CHECK(Contains(why("coefficients", Floats{1}), "there are 1 coefficients"));
  CHECK(Contains(why("rho", Floats{1}), "'rho' has 1 elements, expected one for each of 3 pairs"));
  CHECK(Contains(why("prob_a", Floats{1, 2, 3}), "'prob_b' has 0 elements"));
  CHECK(Contains(why("classlabels_strings", std::vector<std::string>{"a"}), "has 3 labels"));
  CHECK(Contains(
      ErrorOf([] {
        Invoke(
            kClassifier, {Rows()},
            {{"coefficients", Floats{1, 2}}, {"classlabels_ints", Ints{1}}, {"prob_a", Floats{1}}});
      }).message(),
      "has 'prob_a' but no support vectors"));
}

TEST_CASE("a classifier keeps the promises of its schema") {
  CheckNode(OperatorDef(kClassifier, {"x"}, {"y", "z"}, ThreeClasses("RBF")), {Rows()});
  CheckNode(OperatorDef(kClassifier, {"x"}, {"y", "z"}, TwoClasses("LINEAR")), {Rows()});
}

}  // namespace
}  // namespace svm_test
