// An operator with a gradient: a maker names the operator that computes the gradient, and a check
// compares both with finite differences.
//   g++ -std=c++20 -Iinclude examples/12_gradient.cpp -o gradient && ./gradient
#include <cmath>
#include <cstdio>
#include <opkit/graph.hpp>
#include <opkit/op/check.hpp>
#include <opkit/op/gradient/gradient.hpp>

using namespace opkit;

// y = x^exponent
template <class Context>
void Power(Context& ctx, In<"x", float> x, Out<"y", float> y, Attr<"exponent", float> exponent) {
  ParallelFor(ctx, y.size(), [=] OPKIT_DEVICE(int64_t i) { y[i] = std::pow(x[i], exponent); });
}
OPKIT_OP(Power).SameShape<"x", "y">().Default<"exponent">(2.f).Kernel<CPUContext>();

// dx = exponent x^(exponent - 1) dy, computed by a separate operator with the same attribute.
template <class Context>
void PowerGradient(Context& ctx, In<"x", float> x, In<"dy", float> dy, Out<"dx", float> dx,
                   Attr<"exponent", float> exponent) {
  ParallelFor(ctx, dx.size(), [=] OPKIT_DEVICE(int64_t i) {
    dx[i] = exponent * std::pow(x[i], exponent - 1) * dy[i];
  });
}
OPKIT_OP(PowerGradient).SameShape<"x", "dy", "dx">().Default<"exponent">(2.f).Kernel<CPUContext>();

class PowerGradientMaker final : public GradientMakerBase {
  using GradientMakerBase::GradientMakerBase;
  std::vector<OperatorDef> GetGradientDefs() override {
    return SingleGradientDef("PowerGradient", "", {I(0), GO(0)}, {GI(0)});
  }
};
REGISTER_GRADIENT(Power, PowerGradientMaker);

int main() {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2}).AddInput("dy", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("Power", {"x"}, {"y"}).Arg("exponent", 3.f));
  const GradientMap gradients = AddGradients(graph, "y", {"x"}, {.seed = "dy"});
  const std::string dx = gradients.at("x").dense;
  graph.AddOutput("y").AddOutput(dx);
  Executor exec(Compile(graph));
  const auto out = exec.Run(
      {{"x", Tensor::From<float>({2}, {1, 2})}, {"dy", Tensor::From<float>({2}, {1, 10})}});
  const std::vector<float> slope = out.Get(dx).ToVector<float>();
  std::printf("%s: %g %g\n", dx.c_str(), slope[0], slope[1]);

  // Compares the gradient, from the maker to its kernel, with finite differences of the forward
  // kernel.
  const GradientCheckResult check = CheckGradient(
      OperatorDef("Power", {"x"}, {"y"}).Arg("exponent", 3.f), {Tensor::From<float>({2}, {1, 2})});
  std::printf("%s\n", ToString(check).c_str());
  return check.ok() && slope == std::vector<float>{3, 120} ? 0 : 1;
}
