// Trains the classifier of 07_train.cpp on 2 and on 4 processes, each with a part of the points.
// DataParallel adds the backward graph and the nodes that average the gradients of all processes.
// The processes are threads of this program. Links the standard operators and opkit::cluster.
#include <cmath>
#include <cstdio>
#include <opkit/cluster/data_parallel.hpp>
#include <opkit/cluster/local.hpp>
#include <opkit/cluster/process_parts.hpp>
#include <opkit/graph.hpp>
#include <random>

using namespace opkit;

constexpr int64_t kPoints = 300, kHidden = 64, kArms = 3;

// Returns the mean loss of all points after the training.
float Train(const CommunicatorPtr& communicator) {
  const int64_t parts = communicator->processes(), rows = kPoints / parts;
  std::mt19937 random(1);  // all processes draw the same points and begin with the same weights
  const auto draw = [&] { return static_cast<float>(random() % 2001) / 1000 - 1; };  // -1 to 1
  Tensor x(Shape{rows, 2}, DType::kFloat32), arm(Shape{rows, kArms}, DType::kFloat32);
  for (int64_t i = 0, row = 0; i < kPoints; ++i) {
    const float r = std::abs(draw()), turn = 4 * r + 2.0944f * static_cast<float>(i % kArms);
    if (i % parts != communicator->process()) continue;  // a point of another process
    x.mutable_data<float>()[2 * row] = r * std::sin(turn);
    x.mutable_data<float>()[2 * row + 1] = r * std::cos(turn);
    for (int64_t k = 0; k < kArms; ++k)
      arm.mutable_data<float>()[kArms * row + k] = k == i % kArms ? 1.f : 0.f;
    ++row;
  }
  Graph g;
  g.AddInput("X", DType::kFloat32, {rows, 2}).AddInput("T", DType::kFloat32, {rows, kArms});
  std::vector<Tensor> weights;
  const std::vector<std::string> names = {"W1", "B1", "W2", "B2"};
  for (const Shape& shape :
       {Shape{2, kHidden}, Shape{kHidden}, Shape{kHidden, kArms}, Shape{kArms}}) {
    g.AddInput(names[weights.size()], DType::kFloat32, shape);
    float* weight = weights.emplace_back(shape, DType::kFloat32).mutable_data<float>();
    for (int64_t i = 0; i < shape.numel(); ++i) weight[i] = draw();
  }
  g.AddNode(OperatorDef("Gemm", {"X", "W1", "B1"}, {"A"}));
  g.AddNode(OperatorDef("Relu", {"A"}, {"H"}));
  g.AddNode(OperatorDef("Gemm", {"H", "W2", "B2"}, {"Y"}));
  g.AddNode(OperatorDef("LogSoftmax", {"Y"}, {"L"}));
  g.AddNode(OperatorDef("Mul", {"L", "T"}, {"P"}));
  g.AddNode(OperatorDef("ReduceMean", {"P"}, {"M"}, {{"keepdims", 0}}));
  g.AddNode(OperatorDef("Neg", {"M"}, {"loss"}));
  const GradientMap gradients = DataParallel(g, "loss", names);
  for (const std::string& name : names) g.AddOutput(gradients.at(name).dense);
  g.AddNode(OperatorDef("opkit.cluster.AllReduce", {"loss"}, {"mean"}, {{"reduction", "mean"}}));
  g.AddOutput("mean");
  PlanOptions options;
  options.cluster.communicator = communicator;
  Executor exec(Compile(g, options));
  for (size_t w = 0; w < names.size(); ++w) exec.Bind(names[w], weights[w]);
  for (int step = 0;; ++step) {
    const auto out = exec.Run({{"X", x}, {"T", arm}});
    if (step == 2000) return kArms * out.Get("mean").ToVector<float>()[0];
    for (size_t w = 0; w < names.size(); ++w) {
      const float* slope = out.Get(gradients.at(names[w]).dense).data<float>();
      for (int64_t i = 0; i < weights[w].numel(); ++i)
        weights[w].mutable_data<float>()[i] -= 1.5f * slope[i];
    }
  }
}

int main() {
  float loss[2] = {};
  for (const int processes : {2, 4})
    LocalCluster(processes).Run([&](const CommunicatorPtr& communicator) {
      const float found = Train(communicator);
      if (communicator->process() == 0) loss[processes / 4] = found;
    });
  std::printf("loss %.4f on 2 processes, %.4f on 4\n", loss[0], loss[1]);
  return loss[0] < 0.1f && std::abs(loss[0] - loss[1]) < 0.01f ? 0 : 1;
}
