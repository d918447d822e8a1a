// CausalConvWithState.
#include "opkit/ops/nn/causal_conv.hpp"

#include "../data_movement.hpp"

namespace causal_conv_test {
using namespace opkit_tests;

namespace {

const char* const kOp = "CausalConvWithState";
const Tensor kNone;
const Tensor kSteps = Tensor::From<float>({1, 2, 3}, {1, 2, 3, 4, 5, 6});
const Tensor kWeight = Tensor::From<float>({2, 1, 3}, {100, 10, 1, 1, 0, 0});

std::vector<Tensor> Run(const std::vector<Tensor>& inputs, Arguments args = {}) {
  return Invoke(kOp, inputs, std::move(args), {.num_outputs = 2});
}

TEST_CASE("a step is the sum of itself and the steps before it") {
  const auto out = Run({kSteps, kWeight});
  CHECK(FloatsOf(out[0]) == Floats{1, 12, 123, 0, 0, 4});
  CHECK(FloatsOf(out[1]) == Floats{2, 3, 5, 6});
  CHECK(FloatsOf(Run({kSteps, kWeight, Vector({1000, 0})})[0]) ==
        Floats{1001, 1012, 1123, 0, 0, 4});
}

TEST_CASE("a sequence in pieces gives the same as in one") {
  const Tensor first = Tensor::From<float>({1, 2, 1}, {1, 4});
  const Tensor rest = Tensor::From<float>({1, 2, 2}, {2, 3, 5, 6});
  const auto one = Run({first, kWeight});
  CHECK(FloatsOf(one[1]) == Floats{0, 1, 0, 4});
  const auto two = Run({rest, kWeight, kNone, one[1]});
  CHECK(FloatsOf(two[0]) == Floats{12, 123, 0, 4});
  CHECK(FloatsOf(two[1]) == Floats{2, 3, 5, 6});
}

TEST_CASE("the activation silu multiplies by the sigmoid") {
  for (const char* name : {"silu", "swish"}) {
    const Tensor y =
        Run({kSteps, Tensor::From<float>({2, 1, 1}, {1, -1})}, {{"activation", name}})[0];
    CHECK(FloatsOf(y)[1] == doctest::Approx(2 / (1 + std::exp(-2.))));
    CHECK(FloatsOf(y)[3] == doctest::Approx(-4 / (1 + std::exp(4.))));
  }
}

TEST_CASE("shapes are inferred, and wrong ones refused") {
  CHECK(Inferred(kOp, {{Sym("N"), 2, Sym("L")}, {2, 1, 4}}, {}, 2) ==
        "float32[N, 2, L] float32[N, 2, 3]");
  CHECK(Contains(Refused(kOp, {{1, 2}, {2, 1, 4}}), "input has shape [1, 2]"));
  CHECK(Contains(Refused(kOp, {{1, 2, 3}, {3, 1, 4}}), "expected [2, 1, ?]"));
  CHECK(Contains(Refused(kOp, {{1, 2, 3}, {2, 1, 0}}), "a kernel of 1 or more"));
  CHECK(Contains(Refused(kOp, {{1, 2, 3}, {2, 1, 4}, {3}}), "bias has shape [3]"));
  CHECK(Contains(Refused(kOp, {{1, 2, 3}, {2, 1, 4}, {2}, {1, 2, 4}}), "expected [1, 2, 3]"));
  CHECK(Contains(Inferred(kOp, {{1, 2, 3}, {2, 1, 4}}, {{"activation", "relu"}}), "activation"));
}

TEST_CASE("the operator keeps the promises of its schema") {
  CheckNode(OperatorDef(kOp, {"x", "w", "b", "past"}, {"y", "present"}),
            {Counting({2, 3, 4}), Counting({3, 1, 2}), Counting({3}), Counting({2, 3, 1})});
}

TEST_CASE("gradients of the input, the kernels, the bias and the past") {
  const auto random = [](Shape shape, uint64_t seed) {
    return RandomTensor(shape, DType::kFloat64, seed);
  };
  const std::vector<Tensor> inputs = {random({2, 3, 4}, 1), random({3, 1, 3}, 2), random({3}, 3),
                                      random({2, 3, 2}, 4)};
  for (const char* activation : {"none", "silu"}) {
    CAPTURE(activation);
    const OperatorDef def("CausalConvWithState", {"x", "w", "b", "p"}, {"y", "next"},
                          {{"activation", activation}});
    const auto result = CheckGradient(def, inputs, {.inputs = {0, 1, 2, 3}});
    CHECK_MESSAGE(result.ok(), ToString(result));
  }
  const OperatorDef bare("CausalConvWithState", {"x", "w"}, {"y"});
  const auto result = CheckGradient(bare, {inputs[0], inputs[1]}, {.inputs = {0, 1}});
  CHECK_MESSAGE(result.ok(), ToString(result));
}

}  // namespace
}  // namespace causal_conv_test
