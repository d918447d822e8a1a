// Trains a small classifier that finds the arm of a spiral on which a point lies. AddGradients
// makes the backward graph, one executor runs both graphs, and 95% of new points must get the right
// arm. Links the standard operators.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <opkit/graph.hpp>
#include <random>

using namespace opkit;

constexpr int64_t kPoints = 300, kHidden = 64, kArms = 3;

struct Points {
  Tensor x{Shape{kPoints, 2}, DType::kFloat32}, arm{Shape{kPoints, kArms}, DType::kFloat32};
};
Points Draw(std::mt19937& random) {
  Points points;
  for (int64_t i = 0; i < kPoints; ++i) {
    const float r = static_cast<float>(random() % 1000) / 1000;
    const float turn = 4 * r + 2.0944f * static_cast<float>(i % kArms);
    points.x.mutable_data<float>()[2 * i] = r * std::sin(turn);
    points.x.mutable_data<float>()[2 * i + 1] = r * std::cos(turn);
    for (int64_t k = 0; k < kArms; ++k)
      points.arm.mutable_data<float>()[kArms * i + k] = k == i % kArms ? 1.f : 0.f;
  }
  return points;
}

int main() {
  std::mt19937 random(1);
  const Points seen = Draw(random), unseen = Draw(random);
  Graph g;
  g.AddInput("X", DType::kFloat32, {kPoints, 2}).AddInput("T", DType::kFloat32, {kPoints, kArms});
  std::vector<Tensor> weights;
  const std::vector<std::string> names = {"W1", "B1", "W2", "B2"};
  for (const Shape& shape :
       {Shape{2, kHidden}, Shape{kHidden}, Shape{kHidden, kArms}, Shape{kArms}}) {
    g.AddInput(names[weights.size()], DType::kFloat32, shape);
    float* weight = weights.emplace_back(shape, DType::kFloat32).mutable_data<float>();
    for (int64_t i = 0; i < shape.numel(); ++i)
      weight[i] = static_cast<float>(random() % 2001) / 1000 - 1;  // -1 to 1
  }
  g.AddNode(OperatorDef("Gemm", {"X", "W1", "B1"}, {"A"}));
  g.AddNode(OperatorDef("Relu", {"A"}, {"H"}));
  g.AddNode(OperatorDef("Gemm", {"H", "W2", "B2"}, {"Y"}));
  g.AddNode(OperatorDef("LogSoftmax", {"Y"}, {"L"}));
  g.AddNode(OperatorDef("Mul", {"L", "T"}, {"P"}));
  g.AddNode(OperatorDef("ReduceMean", {"P"}, {"M"}, {{"keepdims", 0}}));
  g.AddNode(OperatorDef("Neg", {"M"}, {"loss"}));
  g.AddOutput("Y").AddOutput("loss");
  const GradientMap gradients = AddGradients(g, "loss", names);
  for (const std::string& name : names) g.AddOutput(gradients.at(name).dense);

  Executor exec(Compile(g));
  for (size_t w = 0; w < names.size(); ++w) exec.Bind(names[w], weights[w]);
  for (int step = 0; step <= 2000; ++step) {
    const auto out = exec.Run({{"X", seen.x}, {"T", seen.arm}});
    if (step % 500 == 0)
      std::printf("step %4d: loss %.3f\n", step, kArms * out.Get("loss").ToVector<float>()[0]);
    for (size_t w = 0; w < names.size(); ++w) {
      const float* slope = out.Get(gradients.at(names[w]).dense).data<float>();
      for (int64_t i = 0; i < weights[w].numel(); ++i)
        weights[w].mutable_data<float>()[i] -= 1.5f * slope[i];
    }
  }
  const std::vector<float> y =
      exec.Run({{"X", unseen.x}, {"T", unseen.arm}}).Get("Y").ToVector<float>();
  int64_t right = 0;
  for (int64_t i = 0; i < kPoints; ++i) {
    const float* scores = y.data() + kArms * i;
    right += std::max_element(scores, scores + kArms) - scores == i % kArms;
  }
  std::printf("%.1f%% of the unseen points are on the arm it says\n", 100.0 * right / kPoints);
  return right >= kPoints * 95 / 100 ? 0 : 1;
}
