// A partitioner: a small runtime takes chains of Exp and Log, for which no other backend has
// kernels, and runs each chain in one pass over the data.
//   g++ -std=c++20 -Iinclude examples/partition/partitioner.cpp -o parts && ./parts
#include <cmath>
#include <cstdio>
#include <opkit/partition.hpp>

using namespace opkit;

// The runtime: an operator that runs the subgraph of its node.
class ChainOp final : public Operator<CPUContext> {
 public:
  ChainOp(const OperatorDef& def, Workspace* ws) : Operator(def, ws) {
    for (const OperatorDef& node : SubgraphOf(def, "body")->nodes())
      steps_.push_back(node.type() == "Exp" ? ::expf : ::logf);
  }
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    float* y = Output(0, x.shape(), DType::kFloat32)->mutable_data<float>();
    for (int64_t i = 0; i < x.numel(); ++i) {
      y[i] = x.data<float>()[i];
      for (const auto step : steps_) y[i] = step(y[i]);
    }
    return true;
  }

 private:
  std::vector<float (*)(float)> steps_;
};
OPERATOR_SCHEMA(Chain).NumInputs(1).NumOutputs(1).NeedsSubgraph().IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(Chain, ChainOp);

// Takes the nodes. Nodes that follow each other become one subgraph.
void TakeChains(const PartitionView& view, PartitionAnswer& answer) {
  for (const PartitionNode& node : view.nodes())
    if (node.op() == "Exp" || node.op() == "Log") answer.Take(node);
}
// Rejects a subgraph that is no chain: a chain has one input and one output.
void ReviewChain(SubgraphReview& review) {
  if (review.body().inputs().size() != 1 || review.body().outputs().size() != 1)
    review.Reject("it is no chain");
}
REGISTER_PARTITIONER(chains)
    .setSupportedOps(TakeChains)
    .setSubgraphOp("Chain")
    .setAcceptSubgraph(ReviewChain);

// An operator of the program itself.
template <class Context>
void Double(Context& ctx, In<"x", float> x, Out<"y", float> y) {
  ParallelFor(ctx, y.size(), [=](int64_t i) { y[i] = 2 * x[i]; });
}
OPKIT_OP(Double).SameShape<"x", "y">().Kernel<CPUContext>();

int main() {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {3});
  graph.AddNode(OperatorDef("Log", {"x"}, {"a"}));
  graph.AddNode(OperatorDef("Double", {"a"}, {"b"}));
  graph.AddNode(OperatorDef("Exp", {"b"}, {"c"}));
  graph.AddNode(OperatorDef("Log", {"c"}, {"d"}));
  graph.AddNode(OperatorDef("Exp", {"d"}, {"y"}));
  graph.AddOutput("y");

  const Plan plan = Compile(graph, {.partitioners = {"chains"}});
  std::printf("%s", ToString(plan.partition_report()).c_str());
  Executor exec(plan);
  const Tensor x = Tensor::From<float>({3}, {1, 2, 3});
  const std::vector<float> y = exec.Run({{"x", x}}).Get("y").ToVector<float>();  // x squared
  bool right = plan.partition_report().num_taken() == 4 && plan.graph().num_nodes() == 3;
  for (int i = 0; i < 3; ++i) right &= std::fabs(y[i] - float((i + 1) * (i + 1))) < 1e-4f;
  std::printf("%g %g %g\n", y[0], y[1], y[2]);
  return right ? 0 : 1;
}
