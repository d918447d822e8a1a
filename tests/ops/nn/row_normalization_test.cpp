// Hardmax, LpNormalization, RMSNormalization.
#include "opkit/ops/nn/row_normalization.hpp"

#include "../data_movement.hpp"

namespace row_normalization_test {
using namespace opkit_tests;

namespace {

Floats Run(const char* op, const std::vector<Tensor>& inputs, Arguments args = {}) {
  return FloatsOf(Invoke(op, inputs, std::move(args))[0]);
}

TEST_CASE("Hardmax marks the first largest element") {
  const Tensor x = Tensor::From<float>({2, 3}, {1, 3, 3, 4, -1, 2});
  CHECK(Run("Hardmax", {x}) == Floats{0, 1, 0, 1, 0, 0});
  CHECK(Run("Hardmax", {x}, {{"axis", 0}}) == Floats{0, 1, 1, 1, 0, 0});
  CHECK(Run("Hardmax", {Counting({2, 0})}) == Floats{});
}

TEST_CASE("LpNormalization divides by a norm, and a norm of 0 gives 0") {
  const Tensor x = Tensor::From<float>({2, 2}, {3, -4, 0, 0});
  CHECK(Run("LpNormalization", {x}) == Floats{0.6f, -0.8f, 0, 0});
  CHECK(Run("LpNormalization", {x}, {{"p", 1}}) == Floats{3.f / 7, -4.f / 7, 0, 0});
  CHECK(Run("LpNormalization", {x}, {{"axis", 0}}) == Floats{1, -1, 0, 0});
  CHECK(Contains(ErrorOf([&] {
                   Run("LpNormalization", {x}, {{"p", 3}});
                 }).message(),
                 "LpNormalization: p is 3, expected 1 or 2"));
}

TEST_CASE("RMSNormalization divides by the root of the mean square, times a scale") {
  const Tensor x = Tensor::From<float>({2, 2}, {1, 7, 0, 0});
  CHECK(Run("RMSNormalization", {x, Vector({1, 10})}, {{"epsilon", 0.f}})[1] == 14);
  CHECK(Run("RMSNormalization", {x, Vector({2})}, {{"epsilon", 24.f}}) == Floats{2.f / 7, 2, 0, 0});
  CHECK(Run("RMSNormalization",
            {Tensor::From<float>({2, 2}, {2, 2, 2, 2}), Tensor::From<float>({2, 1}, {1, 3})},
            {{"axis", 0}, {"epsilon", 0.f}}) == Floats{1, 1, 3, 3});
  CHECK(Inferred("RMSNormalization", {{Sym("N"), 3}, {DType::kFloat16, {3}}}) == "float16[N, 3]");
  CHECK(Contains(Refused("RMSNormalization", {{2, 3}, {2, 3}}), "cannot be broadcast"));
  CHECK(Contains(Refused("RMSNormalization", {{2, 3}, {3}}, {{"stash_type", 10}}),
                 "stash_type is 10"));
}

TEST_CASE("the operators keep the promises of their schemas") {
  for (const char* op : {"Hardmax", "LpNormalization"})
    CheckNode(OperatorDef(op, {"x"}, {"y"}), {Counting({2, 3})});
  CheckNode(OperatorDef("RMSNormalization", {"x", "s"}, {"y"}),
            {Counting({2, 3}), Vector({1, 2, 3})});
}

}  // namespace
}  // namespace row_normalization_test
