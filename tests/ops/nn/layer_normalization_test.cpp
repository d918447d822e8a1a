// LayerNormalization: values, statistics, broadcast factors, errors.
#include "opkit/ops/nn/layer_normalization.hpp"

#include <doctest/doctest.h>

#include "opkit/op/invoke.hpp"
#include "ops/infer.hpp"
#include "support/check_node.hpp"
#include "support/tensors.hpp"

namespace layer_normalization_test {
using namespace opkit_tests;

namespace {

TEST_CASE("Rows are brought to mean 0 and variance 1, then scaled and moved") {
  const Tensor x = Tensor::From<float>({2, 2}, {1, 3, 10, 30});  // means 2 and 20
  const Tensor scale = Tensor::From<float>({2}, {1, 10}), bias = Tensor::From<float>({2}, {0, 5});
  const auto out =
      Invoke("LayerNormalization", {x, scale, bias}, {{"epsilon", 0.f}}, {.num_outputs = 3});
  CHECK(out[0].ToVector<float>() == std::vector<float>{-1, 15, -1, 15});
  CHECK(out[1].shape() == Shape{2, 1});
  CHECK(out[1].ToVector<float>() == std::vector<float>{2, 20});
  CHECK(out[2].ToVector<float>() == std::vector<float>{1, 0.1f});
}

TEST_CASE("epsilon is added to the variance, and a mean far from 0 does no harm") {
  const Tensor x = Tensor::From<float>({1, 2}, {1, 3}), one = Tensor::From<float>({2}, {1, 1});
  const auto y = Invoke("LayerNormalization", {x, one}, {{"epsilon", 3.f}}, {.num_outputs = 1});
  CHECK(y[0].ToVector<float>() == std::vector<float>{-0.5f, 0.5f});
  const Tensor far = Tensor::From<float>({1, 2}, {1e6f, 1e6f + 2});
  CHECK(Invoke("LayerNormalization", {far, one}, {{"epsilon", 0.f}}, {.num_outputs = 1})[0]
            .ToVector<float>() == std::vector<float>{-1, 1});
}

TEST_CASE("Several axes are one row; factors that are smaller are broadcast") {
  const Tensor x = Tensor::From<double>({1, 2, 2}, {1, 1, 3, 3});
  const Tensor scale = Tensor::From<double>({2, 1}, {1, 100});
  const Tensor bias = Tensor::From<double>({2}, {0, 0.5});
  const auto out = Invoke("LayerNormalization", {x, scale, bias}, {{"axis", 1}, {"epsilon", 0.f}},
                          {.num_outputs = 2});
  CHECK(out[0].ToVector<double>() == std::vector<double>{-1, -0.5, 100, 100.5});
  CHECK(out[1].dtype() == DType::kFloat32);
  CHECK(out[1].shape() == Shape{1, 1, 1});
}

TEST_CASE("stash_type 16 keeps the statistics as bfloat16") {
  const Tensor x = Tensor::From<float>({1, 2}, {1, 3}), one = Tensor::From<float>({2}, {1, 1});
  const auto out = Invoke("LayerNormalization", {x, one}, {{"stash_type", 16}}, {.num_outputs = 3});
  CHECK(out[1].dtype() == DType::kBFloat16);
  CHECK(static_cast<float>(out[1].data<bfloat16>()[0]) == 2);
}

TEST_CASE("Statistics keep the axes that are not normalized") {
  CHECK(Inferred("LayerNormalization", {F({Sym("N"), 3, 4}), F({3, 4})}, {{"axis", 1}}, 3) ==
        "float32[N, 3, 4] float32[N, 1, 1] float32[N, 1, 1]");
  CHECK(Inferred("LayerNormalization", {F(SymbolicShape()), F({4})}) == "float32[rank unknown]");
}

TEST_CASE("Wrong factors, axes and types are refused") {
  CHECK(Refused("LayerNormalization", {F({2, 3}), F({2})}) ==
        "LayerNormalization: Scale is [2], which cannot be broadcast to X, which is [2, 3]");
  CHECK(Contains(Refused("LayerNormalization", {F({2, 3}), F({3}), F({1, 1, 3})}), "B is"));
  CHECK(Contains(Refused("LayerNormalization", {F({2, 3}), F({3})}, {{"axis", 2}}), "axis 2"));
  CHECK(Contains(Refused("LayerNormalization", {F({2, 3}), F({3})}, {{"stash_type", 11}}),
                 "stash_type 11, expected 1 (float32) or 16 (bfloat16)"));
}

TEST_CASE("LayerNormalization keeps the promises of its schema") {
  const OperatorDef def("LayerNormalization", {"x", "s", "b"}, {"y", "m", "v"}, {{"axis", 1}});
  CheckNode(def, {Random({4, 3, 5}, 1), Random({3, 5}, 2), Random({5}, 3)});
}

TEST_CASE("Gradients of LayerNormalization, of the statistics too, from any axis on") {
  for (const int64_t axis : {-1, 1, 0}) {
    CAPTURE(axis);
    const OperatorDef def("LayerNormalization", {"x", "s", "b"}, {"y", "m", "v"},
                          {{"axis", axis}, {"epsilon", 0.1f}});
    const GradientCheckOptions options{.step = 1e-2, .threshold = 2e-3, .inputs = {0, 1, 2}};
    const std::vector<Tensor> inputs = {Random({2, 3, 4}, 1), Random({4}, 2), Random({3, 1}, 3)};
    const auto result = CheckGradient(def, inputs, options);
    CHECK_MESSAGE(result.ok(), ToString(result));
  }
}

}  // namespace
}  // namespace layer_normalization_test
