// A training step on the device: the classifier of examples/07_train.cpp, smaller.
#include <doctest/doctest.h>

#include <cmath>

#include "opkit/backends/cuda/context.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/graph/gradient/gradients.hpp"
#include "support/backends.hpp"

namespace training_test {
using namespace opkit;

namespace {

constexpr int64_t kPoints = 30, kHidden = 8, kArms = 3;
const std::vector<std::string> kWeights = {"W1", "B1", "W2", "B2"};

Tensor Numbers(const Shape& shape, size_t seed) {
  Tensor out(shape, DType::kFloat32);
  for (int64_t i = 0; i < shape.numel(); ++i)
    out.mutable_data<float>()[i] =
        std::sin(static_cast<float>(i + 1) * static_cast<float>(seed + 1));
  return out;
}
// The loss and the gradients of the weights are outputs.
Graph Step() {
  Graph g;
  g.AddInput("X", DType::kFloat32, {kPoints, 2}).AddInput("T", DType::kFloat32, {kPoints, kArms});
  const Shape shapes[] = {{2, kHidden}, {kHidden}, {kHidden, kArms}, {kArms}};
  for (size_t w = 0; w < kWeights.size(); ++w) g.AddInput(kWeights[w], DType::kFloat32, shapes[w]);
  g.AddNode(OperatorDef("Gemm", {"X", "W1", "B1"}, {"A"}));
  g.AddNode(OperatorDef("Relu", {"A"}, {"H"}));
  g.AddNode(OperatorDef("Gemm", {"H", "W2", "B2"}, {"Y"}));
  g.AddNode(OperatorDef("LogSoftmax", {"Y"}, {"L"}));
  g.AddNode(OperatorDef("Mul", {"L", "T"}, {"P"}));
  g.AddNode(OperatorDef("ReduceMean", {"P"}, {"M"}, {{"keepdims", 0}}));
  g.AddNode(OperatorDef("Neg", {"M"}, {"loss"}));
  g.AddOutput("loss");
  const GradientMap gradients = AddGradients(g, "loss", kWeights);
  for (const std::string& name : kWeights) g.AddOutput(gradients.at(name).dense);
  return g;
}
// The losses of some steps of gradient descent.
std::vector<float> Train(const Plan& plan) {
  std::vector<NamedTensor> feeds{{"X", Numbers({kPoints, 2}, 1)},
                                 {"T", Numbers({kPoints, kArms}, 2)}};
  for (size_t w = 0; w < kWeights.size(); ++w)
    feeds.push_back(
        {kWeights[w], Numbers(plan.graph().inputs()[2 + w].info.shape.ToShape(), 3 + w)});
  Executor executor(plan);
  std::vector<float> losses;
  for (int step = 0; step < 10; ++step) {
    size_t o = 0;
    for (const auto& [name, tensor] : executor.Run(feeds)) {
      const std::vector<float> values = OnHost(tensor).ToVector<float>();
      if (o == 0) {
        losses.push_back(values[0]);
      } else {
        Tensor& weight = feeds[1 + o].tensor;
        std::vector<float> next = weight.ToVector<float>();
        for (size_t i = 0; i < next.size(); ++i) next[i] -= 0.5f * values[i];
        weight = Tensor::From<float>(weight.shape(), next);
      }
      ++o;
    }
  }
  return losses;
}

}  // namespace

TEST_CASE("a classifier is trained on the device as on the CPU, and no node leaves the device") {
  const std::vector<float> expected = Train(Compile(Step()));
  const Plan plan = Compile(Step(), {.devices = {Device{DeviceType::kCUDA, 0}}});
  const std::vector<float> found = Train(plan);
  for (int node = 0; node < plan.graph().num_nodes(); ++node)
    CHECK(plan.choice(node).kernel->device == DeviceType::kCUDA);
  CHECK(expected.back() < expected.front());
  for (size_t i = 0; i < expected.size(); ++i)
    CHECK(found[i] == doctest::Approx(expected[i]).epsilon(1e-5));
}

}  // namespace training_test
