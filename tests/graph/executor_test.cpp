#include "opkit/graph/executor.hpp"

#include <doctest/doctest.h>

#include "../error_of.hpp"

using namespace opkit;

namespace {

constexpr DType kFloat = DType::kFloat32;
using Floats = std::vector<float>;

Tensor Vector(std::initializer_list<float> values) {
  return Tensor::From<float>({static_cast<int64_t>(values.size())}, values);
}
Floats Of(const Tensor& tensor) { return tensor.ToVector<float>(); }

// Y = relu(2 x) + 3 relu(2 x)
Graph Diamond(SymbolicShape shape) {
  Graph g;
  g.AddInput("X", kFloat, std::move(shape));
  g.AddNode(OperatorDef("Scale").Input("X").Output("S").Arg("scale", 2.f));
  g.AddNode(OperatorDef("Relu").Input("S").Output("A"));
  g.AddNode(OperatorDef("Scale").Input("A").Output("B").Arg("scale", 3.f));
  g.AddNode(OperatorDef("Add").Input("A").Input("B").Output("Y"));
  g.AddOutput("Y");
  return g;
}

}  // namespace

TEST_CASE("a graph is compiled and run") {
  const Plan plan = Compile(Diamond({3}), {.threads = 2});
  Executor exec(plan);
  const auto out = exec.Run({{"X", Vector({1, -2, 3})}});
  CHECK(Of(out.at("Y")) == Floats{8, 0, 24});
  CHECK(out.size() == 1);
  CHECK(Contains(ErrorOf([&] { out.at("Z"); }).what(), "there is no output 'Z'"));
  CHECK(Contains(plan.Describe(), "plan of 4 nodes on 2 threads"));
  MESSAGE(plan.Describe());
  MESSAGE(exec.ExplainMode());
}

TEST_CASE("bound inputs and outputs are used where they are") {
  Executor exec(Compile(Diamond({3}), {.threads = 1}));
  Tensor x = Vector({1, 2, 3}), y = Vector({0, 0, 0});
  const float* memory = y.data<float>();
  exec.Bind("X", x);
  exec.Bind("Y", y);
  exec.Run();
  CHECK(Of(y) == Floats{8, 16, 24});
  x.mutable_data<float>()[0] = 2;
  exec.Run();
  CHECK(Of(y) == Floats{16, 16, 24});
  CHECK(y.data<float>() == memory);
  CHECK(exec.output("Y").data<float>() == memory);
}
