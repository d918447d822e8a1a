// A library with the typed partitioner and a pass of a program, the same source.
#include <opkit/opkit.hpp>
#include <opkit/partition.hpp>
#include <opkit/plugin/author.hpp>

namespace {

using namespace opkit;  // NOLINT: as an author writes it

// Takes float32 nodes of the operators that the option names, and says of the others why not.
void Supported(const PartitionView& view, PartitionAnswer& answer,
               const PartitionArguments& options) {
  std::string ops;
  for (const auto& [name, value] : options)
    if (name == "ops") ops = value;
  for (const PartitionNode& node : view.nodes())
    if (ops.find(node.op()) == std::string::npos)
      answer.Refuse(node, "it is no " + ops);
    else if (!node.is_registered())
      answer.Refuse(node, "nobody has registered it");
    else if (node.input(0).dtype() != DType::kFloat32 || !node.input(0).shape().has_rank())
      answer.Refuse(node, "its input is not float32");
    else
      answer.Take(node, kAnySubgraph, node.is_taken() ? 1 : 0);
}
void Review(SubgraphReview& review) {
  if (review.nodes().size() == 1) return review.Reject("one node alone");
  review.SetAttribute("size", static_cast<int64_t>(review.nodes().size()));
  review.AddConstant("prepared", Tensor::Scalar<float>(42));
}
REGISTER_PARTITIONER(LibTyped).setSupportedOps(Supported).setAcceptSubgraph(Review);

// A Neg of a Neg becomes an Identity.
Graph DropDoubles(const Graph& graph, const PassArguments& options) {
  if (!options.empty()) Throw(ErrorCode::kInvalidArgument, "it takes no option");
  Graph out = graph;
  for (int i = 0; i < out.num_nodes(); ++i) {
    const OperatorDef& node = out.node(i);
    const int before = node.inputs().empty() ? -1 : out.Producer(node.inputs()[0]);
    if (before < 0 || node.type() != "Neg" || out.node(before).type() != "Neg") continue;
    out.ReplaceNode(i, OperatorDef("Identity", {out.node(before).inputs()[0]}, node.outputs()));
  }
  return out;
}
REGISTER_PASS(lib_drop_doubles).setBody(DropDoubles);
// Throws the inferred type of the first output, which the program's operators infer.
REGISTER_PASS(lib_infers).setBody([](const Graph& graph) -> Graph {
  const GraphView view(graph);
  Throw(ErrorCode::kFailedPrecondition, "it is ",
        ToString(InferGraph(view).Get(graph.outputs()[0])));
});
REGISTER_PASS(lib_bad).setBody([](const Graph& graph) {
  Graph out = graph;
  out.AddNode(OperatorDef("Neg", {"nothing makes it"}, {"bad"}));
  return out;
});

// Runs its graph in the program, and knows the graph's types.
class ReadsBodyOp final : public Operator<CPUContext> {
 public:
  ReadsBodyOp(const OperatorDef& def, Workspace* ws) : Operator(def, ws) {
    const TensorInfo& info = SubgraphOf(def, "body")->inputs()[0].info;
    if (info.dtype != DType::kFloat32 || !info.shape.has_rank() || info.shape.rank() != 2 ||
        !info.shape[0].is_symbol() || info.shape[1] != Dim(3))
      Throw(ErrorCode::kInvalidArgument, "the body's input is ", ToString(info));
  }
  bool RunOnDevice() override {
    OutputTensorCopyFrom(0, Input(0));
    return true;
  }
};
OPERATOR_SCHEMA(LibReadsBody).NumInputs(1).NumOutputs(1).NeedsSubgraph();
REGISTER_CPU_OPERATOR(LibReadsBody, ReadsBodyOp);
REGISTER_PARTITIONER(LibTyped2)
    .setSupportedOps(Supported)
    .setSubgraphOp("LibReadsBody")
    .setAcceptSubgraph([](SubgraphReview& review) {
      if (review.body().inputs()[0].info.shape[1] != Dim(3)) review.Reject("no shape");
    });

}  // namespace
