#include "opkit/graph.hpp"
#include "tiers.hpp"

float SixTimesByGraph(float x) {
  opkit::Graph graph;
  graph.AddInput("X", opkit::DType::kFloat32, {1});
  graph.AddNode(opkit::OperatorDef("TierTwice", {"X"}, {"H"}));
  graph.AddNode(opkit::OperatorDef("TierThrice", {"H"}, {"Y"}));
  graph.AddOutput("Y");
  opkit::Executor executor(opkit::Compile(graph));
  const auto outputs = executor.Run({{"X", opkit::Tensor::From<float>({1}, {x})}});
  return *outputs.Get("Y").data<float>();
}
