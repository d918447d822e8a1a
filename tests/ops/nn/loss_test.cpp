// NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss.
#include "opkit/ops/nn/loss.hpp"

#include "../data_movement.hpp"
#include "opkit/ops/generators.hpp"
#include "opkit/ops/math/arithmetic.hpp"
#include "opkit/ops/math/reduce.hpp"
#include "opkit/ops/math/unary.hpp"

namespace loss_test {
using namespace opkit_tests;

namespace {

const Tensor kScores = Tensor::From<float>({2, 3}, {1, 2, 3, 4, 5, 7});
const Tensor kWeights = Vector({1, 2, 4});

Floats Loss(const std::vector<Tensor>& inputs, Arguments args) {
  return FloatsOf(Invoke("NegativeLogLikelihoodLoss", inputs, std::move(args))[0]);
}

TEST_CASE("the likelihoods of the labels are weighted and reduced") {
  const Tensor labels = List({2, 1});
  CHECK(Loss({kScores, labels}, {{"reduction", "none"}}) == Floats{-3, -5});
  CHECK(Loss({kScores, labels}, {{"reduction", "sum"}}) == Floats{-8});
  CHECK(Loss({kScores, labels}, {}) == Floats{-4});
  CHECK(Loss({kScores, labels, kWeights}, {{"reduction", "none"}}) == Floats{-12, -10});
  CHECK(Loss({kScores, labels, kWeights}, {})[0] == doctest::Approx(-22.0 / 6));
  CHECK(Loss({Counting({1, 2, 2}), Tensor::From<int32_t>({1, 2}, {1, 0})},
             {{"reduction", "none"}}) == Floats{-2, -1});
}

TEST_CASE("an ignored label has no loss and no weight, even if it is no class") {
  const Tensor labels = List({-1, 1});
  CHECK(Loss({kScores, labels, kWeights}, {{"ignore_index", -1}}) == Floats{-5});
  CHECK(Loss({kScores, labels}, {{"ignore_index", -1}, {"reduction", "none"}}) == Floats{0, -5});
}

TEST_CASE("the cross entropy takes scores of any size, and gives their log softmax") {
  const Tensor x = Tensor::From<float>({1, 2}, {1000, 1001});
  OperatorDef def("SoftmaxCrossEntropyLoss", {"x", "l"}, {"y", "log"});
  const auto y =
      Invoke("SoftmaxCrossEntropyLoss", {x, List({0})}, {}, InvokeOptions{.num_outputs = 2});
  CHECK(FloatsOf(y[0])[0] == doctest::Approx(1.3132617));
  CHECK(FloatsOf(y[1])[0] == doctest::Approx(-1.3132617));
  CHECK(FloatsOf(y[1])[1] == doctest::Approx(-0.3132617));
  CheckNode(def, {kScores, List({2, 0})});
}

TEST_CASE("wrong labels and shapes are refused") {
  const Known labels(DType::kInt64, {Sym("N")});
  CHECK(Inferred("SoftmaxCrossEntropyLoss", {{Sym("N"), 3}, labels}, {{"reduction", "none"}}, 2) ==
        "float32[N] float32[N, 3]");
  CHECK(Contains(Refused("NegativeLogLikelihoodLoss", {{3}, labels}), "expected [N, C]"));
  CHECK(!Refused("NegativeLogLikelihoodLoss", {{2, 3}, {DType::kInt64, {3}}}).empty());
  CHECK(Contains(ErrorOf([] {
                   Loss({kScores, List({0, 3})}, {});
                 }).message(),
                 "NegativeLogLikelihoodLoss: label 3 is none of 3 classes"));
  CHECK(Contains(ErrorOf([] {
                   Loss({kScores, List({0, 1})}, {{"reduction", "max"}});
                 }).message(),
                 "known: 'mean', 'none', 'sum'"));
}

TEST_CASE("the operators keep the promises of their schemas") {
  CheckNode(OperatorDef("NegativeLogLikelihoodLoss", {"x", "l", "w"}, {"y"}),
            {kScores, List({2, 0}), kWeights});
}

TEST_CASE("gradients of scores, weights and log-probabilities") {
  const Tensor scores = RandomTensor({2, 3, 2}, DType::kFloat64);
  const Tensor weights = RandomTensor({3}, DType::kFloat64, 3);
  const Tensor labels = Tensor::From<int64_t>({2, 2}, {2, 0, 1, 2});
  for (const char* reduction : {"mean", "none", "sum"}) {
    CAPTURE(reduction);
    const Arguments args = {{"reduction", reduction}, {"ignore_index", 1}};
    CheckNode(OperatorDef("NegativeLogLikelihoodLoss", {"x", "l", "w"}, {"y"}, args),
              {scores, labels, weights});
    CheckNode(OperatorDef("NegativeLogLikelihoodLoss", {"x", "l"}, {"y"}, args), {scores, labels});
    CheckNode(OperatorDef("SoftmaxCrossEntropyLoss", {"x", "l", "w"}, {"y", "log"}, args),
              {scores, labels, weights});
  }
  const GradientOpsMeta only = GetGradientForOp(
      OperatorDef("SoftmaxCrossEntropyLoss", {"x", "l"}, {"y", "log"}), {{}, GradientValue("g")});
  CHECK(only.g_input[0].IsDense());
  CHECK(only.ops.size() == 5);
}

}  // namespace
}  // namespace loss_test
