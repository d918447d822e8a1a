// In-place rules of elementwise operators, as a memory planner sees them: a broadcast input is
// never overwritten, an input of the output's shape may be. Also outputs with short and long rows.
#include "opkit/ops/support/elementwise.hpp"

#include <doctest/doctest.h>

#include "opkit/graph.hpp"
#include "opkit/ops/math/arithmetic.hpp"
#include "opkit/ops/math/unary.hpp"

namespace elementwise_test {
using namespace opkit;

namespace {

// Y = Neg(A) - Neg(B): both operands lie where memory was planned for them.
Graph DifferenceOfNegatives(const Shape& a, const Shape& b) {
  Graph g;
  g.AddInput("A", DType::kFloat32, a);
  g.AddInput("B", DType::kFloat32, b);
  g.AddNode(OperatorDef("Neg", {"A"}, {"NA"}));
  g.AddNode(OperatorDef("Neg", {"B"}, {"NB"}));
  g.AddNode(OperatorDef("Sub", {"NA", "NB"}, {"D"}));
  g.AddNode(OperatorDef("Abs", {"D"}, {"Y"}));
  g.AddOutput("Y");
  return g;
}

TEST_CASE("a plan gives an output the memory of an operand of its shape, never a broadcast one's") {
  const Shape shapes[][2] = {{Shape{4, 3}, Shape{4, 3}},      {Shape{4, 3}, Shape{3}},
                             {Shape{1, 3}, Shape{4, 1}},      {Shape{4, 1}, Shape{4, 3}},
                             {Shape{}, Shape{2, 40}},         {Shape{12}, Shape{1, 12}},
                             {Shape{5, 1, 3}, Shape{1, 7, 1}}};
  for (const auto& pair : shapes) {
    CAPTURE(pair[0]);
    CAPTURE(pair[1]);
    const auto inputs = detail::MakeTestInputs({pair[0], pair[1]}, DType::kFloat32, 9, -2, 2);
    const Plan plan = Compile(DifferenceOfNegatives(pair[0], pair[1]), {.threads = 1});
    Executor executor(plan);
    for (int run = 0; run < 2; ++run) {
      const Tensor y = executor.Run({{"A", inputs[0]}, {"B", inputs[1]}}).Get("Y");
      const BroadcastLoop loop(y.shape(), {&pair[0], &pair[1]});
      loop.Walk(0, loop.size(), [&](int64_t at, int64_t n, const int64_t* from) {
        for (int64_t i = 0; i < n; ++i) {
          const float a = inputs[0].data<float>()[from[0] + i * loop.step(0)];
          const float b = inputs[1].data<float>()[from[1] + i * loop.step(1)];
          CHECK(y.data<float>()[at + i] == std::fabs(b - a));
        }
      });
    }
  }
}

TEST_CASE("an output of an operand's shape costs no memory of its own") {
  auto inplace = [](const Shape& a, const Shape& b) {
    const std::string said = ToString(Compile(DifferenceOfNegatives(a, b), {.threads = 1}));
    return said.find("1 in place") != std::string::npos;
  };
  CHECK(inplace({4, 3}, {4, 3}));
  CHECK(inplace({4, 3}, {3}));
  CHECK(inplace({3}, {4, 3}));
  CHECK_FALSE(inplace({1, 3}, {4, 1}));
}

TEST_CASE("short rows are as long ones, of every size of element") {
  for (const DType dtype : {DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64})
    for (const int64_t width : {1, 2, 31, 32, 33}) {
      CAPTURE(dtype);
      CAPTURE(width);
      const auto inputs =
          detail::MakeTestInputs({Shape{700, 1, width}, Shape{3, width}}, dtype, 4, 1, 100);
      const Tensor sum = Invoke("Add", inputs)[0];
      REQUIRE(sum.shape() == Shape{700, 3, width});
      int64_t wrong = 0;
      NumericTypes::Visit(dtype, [&]<class T>() {
        for (int64_t i = 0; i < sum.numel(); ++i) {
          const int64_t column = i % width, row = i / width;
          const T a = inputs[0].data<T>()[row / 3 * width + column];
          const T b = inputs[1].data<T>()[row % 3 * width + column];
          wrong += sum.data<T>()[i] != detail::AddFunction::Apply(a, b);
        }
      });
      CHECK(wrong == 0);
    }
}

}  // namespace
}  // namespace elementwise_test
