// Subgraph: runs the graph that its node carries. Partitioners create such nodes; a partitioner's
// own operator may take the place of Subgraph. The gradient of either is a Subgraph node.
#ifndef OPKIT_OPS_SUBGRAPH_HPP_
#define OPKIT_OPS_SUBGRAPH_HPP_

#include "opkit/graph/body_inference.hpp"
#include "opkit/graph/gradient/gradients.hpp"
#include "opkit/graph/subgraph.hpp"
#include "opkit/ops/support/body_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline constexpr char kSubgraphBody[] = "body";

// Returns the graph of a Subgraph node. Throws kInvalidArgument if the node carries no graph
// "body".
inline const Graph& SubgraphBodyOf(const OperatorDef& def) {
  const Graph* graph = SubgraphOf(def, kSubgraphBody);
  if (!graph)
    Throw(ErrorCode::kInvalidArgument, "Subgraph needs the graph '", kSubgraphBody,
          "': OperatorDef::Subgraph(\"", kSubgraphBody, "\", MakeSubgraph(graph))");
  return *graph;
}

// Makes the gradient from the gradient of the node's graph.
class SubgraphGradient final : public GradientMakerBase {
 public:
  using GradientMakerBase::GradientMakerBase;
  bool CopyArguments() const override { return false; }
  GradientOpsMeta Get() override {
    std::vector<GradientValue> g_output;
    for (size_t o = 0; o < Def().outputs().size(); ++o)
      g_output.push_back(GradOut(static_cast<int>(o)));
    GradientOpsMeta meta;
    if (!MakeBodyGradient(SubgraphBodyOf(Def()), Def(), g_output, Names(), meta))
      Throw(ErrorCode::kInvalidArgument,
            "the node and its graph differ in their inputs or outputs");
    return meta;
  }
};

}  // namespace detail

class SubgraphOp final : public BodyOperator {
 public:
  SubgraphOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : BodyOperator(def, ws, config, {BodyOf(def)}) {}
  bool RunOnDevice() override { return RunBody(0), true; }

 private:
  static NodeBody BodyOf(const OperatorDef& def) {
    NodeBody body{detail::kSubgraphBody, &detail::SubgraphBodyOf(def), {}};
    for (size_t i = 0; i < body.graph->inputs().size(); ++i)
      body.inputs.push_back(static_cast<int>(i));
    return body;
  }
};

OPKIT_OPERATOR_SCHEMA(Subgraph)
    .NumInputs(0, 1 << 20)
    .NumOutputs(0, 1 << 20)
    .Input(0, "inputs", "those of the body, in its order")
    .Output(0, "outputs", "those of the body, in its order")
    .NeedsSubgraph()
    .RunsSubgraphs()
    .AllowUncheckedAttributes()  // for attributes that a partitioner adds
    .Infer([](InferenceContext& c) {
      detail::InferAsBody(c, detail::SubgraphBodyOf(c.def()), detail::kSubgraphBody);
    })
    .Cost([](auto&...) { return OpCost(); })
    .Doc(
        "Runs the subgraph `body`. Inputs and outputs are bound by position, and types, shapes, "
        "the inputs that are written to and the gradient are those of the body.");
OPKIT_REGISTER_CPU_OPERATOR(Subgraph, SubgraphOp);
OPKIT_REGISTER_GRADIENT(Subgraph, detail::SubgraphGradient);

}}  // namespace opkit

#endif  // OPKIT_OPS_SUBGRAPH_HPP_
