#include "opkit/plugin/testing.hpp"

#include <doctest/doctest.h>

#include "support/check_fails.hpp"
// The source of a library, as an author's test includes it. After testing.hpp: REGISTER_OP is then
// the library's all the same.
#include "plugin/libraries/testing_ops.hpp"
#include "support/tensors.hpp"

namespace testing_test {
using namespace opkit;  // NOLINT: as a test of operators writes it

namespace {
}  // namespace

TEST_CASE("the operators of this program's own sources are loaded once, over the C ABI") {
  const Library library = testing::Load();
  CHECK(library == testing::Load());
  CHECK(library.name() == "(this program)");
  bool found = false;
  for (const std::string& op : library.operators()) found |= op == "TestedCube";
  CHECK(found);
  CHECK(OpRegistry::Global().GetSchema("TestedCube").origin() == "(this program)");
}

TEST_CASE("Infer returns the inferred types, with symbols and unknowns") {
  const auto known = testing::Infer("TestedCube", {{DType::kFloat32, {2, 3}}});
  REQUIRE(known.size() == 1);
  CHECK(ToString(known[0]) == "float32[2, 3]");
  CHECK(ToString(testing::Infer("TestedCube", {{DType::kFloat32, {Dim(), 3}}})[0]) ==
        "float32[?, 3]");
  CHECK(ToString(testing::Infer("TestedBias", {{DType::kFloat32, {Sym("N"), 3}}})[0]) ==
        "float32[N, 3]");
  CheckFails(
      [] {
        testing::Infer("TestedCube", {{DType::kFloat32, {}}, {DType::kFloat32, {}}});
      },
      "TestedCube has 2 inputs, expected 1");
  CheckFails(
      [] {
        testing::Infer("TestedCube", {{DType::kFloat32, {13}}});
      },
      "inferShape of operator TestedCube of library (this program) failed: 13 is refused");
  CheckFails([] { testing::Infer("TestedCub", {}); }, "did you mean 'TestedCube'");
}

TEST_CASE("Forward runs it, with attributes") {
  const Tensor x = Vector({1, 2});
  CHECK(FloatsOf(testing::Forward("TestedCube", {x})[0]) == std::vector<float>{1, 8});
  CHECK(FloatsOf(testing::Forward("TestedCube", {x}, {{"scale", 2.f}})[0]) ==
        std::vector<float>{2, 16});
  CheckFails(
      [&] {
        testing::Forward("TestedCube", {x}, {{"scale", 0.f}});
      },
      "forward of operator TestedCube of library (this program) failed: scale is 0");
}

TEST_CASE("Backward gives the gradients of the inputs") {
  const Tensor x = Vector({1, 2}), dy = Vector({10, 1});
  const auto dx = testing::Backward("TestedCube", {x}, {dy}, {{"scale", 2.f}});
  REQUIRE(dx.size() == 1);
  CHECK(FloatsOf(dx[0]) == std::vector<float>{60, 24});
  // The gradient of a class, whose maker names the operator; input 1 is left out and gets no
  // gradient.
  const auto of_class = testing::Backward("TestedBias", {x, Tensor()}, {dy});
  REQUIRE(of_class.size() == 2);
  CHECK(FloatsOf(of_class[0]) == std::vector<float>{10, 1});
  CHECK(of_class[1].dtype() == DType::kUndefined);
  CheckFails([&] { testing::Backward("TestedPlain", {x}, {dy}); },
             "operator TestedPlain has no gradient");
}

TEST_CASE("CheckGradient and CheckOperator take the operator's name") {
  const Tensor x = Vector({0.5f, 1, -2});
  const GradientCheckResult right = testing::CheckGradient("TestedCube", {x});
  CHECK_MESSAGE(right.ok(), ToString(right));
  CHECK(right.elements_checked == 3);
  const GradientCheckResult wrong =
      testing::CheckGradient("TestedCube", {x}, {{"wrong_gradient", true}});
  CHECK_FALSE(wrong.ok());
  const CheckReport report = testing::CheckOperator("TestedCube");
  CHECK_MESSAGE(report.ok(), ToString(report));
  CheckOptions options;
  options.args = {{"wrong_gradient", true}};
  CHECK_FALSE(testing::CheckOperator("TestedCube", options).ok());
  CHECK(testing::CheckOperator("TestedCube", {x}, {{"scale", 3.f}}).ok());
  CHECK(CheckOperator("TestedCube").ok());  // the toolkit's own, now that they are loaded
  // One that writes past its output.
  const CheckReport past = testing::CheckOperator("TestedPlain", {x}, {{"past", 1}});
  CHECK_FALSE(past.ok());
  CHECK(testing::CheckOperator("TestedPlain", {x}, {{"past", 0}}).ok());
  const CheckReport bytes = testing::CheckOperator("TestedBytes");
  CHECK_MESSAGE(bytes.ok(), ToString(bytes));
  CheckFails([] { testing::CheckOperator("TestedPlain", {}); }, "TestedPlain has 0 inputs");
  CHECK_MESSAGE(Contains(ToString(past), "output"), ToString(past));
}

}  // namespace testing_test
