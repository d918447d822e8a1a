// Hardmax, LpNormalization, RMSNormalization.
#include "opkit/ops/nn/row_normalization.hpp"

#include "../data_movement.hpp"
#include "opkit/ops/cast.hpp"
#include "opkit/ops/generators.hpp"
#include "opkit/ops/math/arithmetic.hpp"
#include "opkit/ops/math/logic.hpp"
#include "opkit/ops/math/reduce.hpp"
#include "opkit/ops/math/unary.hpp"
#include "opkit/ops/shape_of.hpp"
#include "opkit/ops/where.hpp"

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

TEST_CASE("gradients along any axis, and of a row of zeros") {
  const Tensor x = RandomTensor({2, 3, 2}, DType::kFloat64);
  for (const int axis : {1, -1})
    for (const int p : {1, 2})
      CheckNode(OperatorDef("LpNormalization", {"x"}, {"y"}, {{"axis", axis}, {"p", p}}), {x});
  for (const int axis : {0, 1, -2})
    CheckNode(OperatorDef("RMSNormalization", {"x", "s"}, {"y"}, {{"axis", axis}}),
              {x, RandomTensor({3, 1}, DType::kFloat64, 2)});
  // The two inputs may have different types.
  CheckNode(OperatorDef("RMSNormalization", {"x", "s"}, {"y"}),
            {RandomTensor({2, 3}, DType::kFloat32), RandomTensor({3}, DType::kFloat64, 2)});
  for (const char* op : {"LpNormalization", "RMSNormalization"}) CHECK(HasGradient(op));

  Workspace ws;
  *ws.CreateTensor("x") = Tensor::From<float>({2, 2}, {0, 0, 3, 4});
  *ws.CreateTensor("g") = Tensor::From<float>({2, 2}, {1, 1, 1, 0});
  const OperatorDef def("LpNormalization", {"x"}, {"y"});
  CreateOperator(def, &ws)->Run();
  const GradientOpsMeta gradient = GetGradientForOp(def, {GradientValue("g")});
  for (const OperatorDef& op : gradient.ops) CreateOperator(op, &ws)->Run();
  const Floats slopes = FloatsOf(*ws.GetTensor(gradient.g_input[0].dense));
  CHECK(slopes[0] == 0);
  CHECK(slopes[1] == 0);
  CHECK(slopes[2] == doctest::Approx(16. / 125));
}

}  // namespace
}  // namespace row_normalization_test
