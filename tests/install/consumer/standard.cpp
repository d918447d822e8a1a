// The standard operators of the installed package, and a reader of a format.
#include <opkit/graph.hpp>
#include <opkit/interop/json.hpp>

int main() {
  opkit::Graph graph;
  graph.AddInput("X", opkit::DType::kFloat32, {2});
  graph.AddNode(opkit::OperatorDef("Relu", {"X"}, {"Y"}));
  graph.AddOutput("Y");
  opkit::Executor executor(opkit::Compile(opkit::LoadGraphJson(opkit::SaveGraphJson(graph))));
  const auto outputs = executor.Run({{"X", opkit::Tensor::From<float>({2}, {-1, 3})}});
  const float* y = outputs.Get("Y").data<float>();
  return y[0] == 0 && y[1] == 3 ? 0 : 1;
}
