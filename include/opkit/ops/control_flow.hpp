// If: runs one of the two graphs ("branches") of its node. The base class BodyOperator runs the
// graphs. Its gradient is an If whose branches run those of the node again and then backwards.
#ifndef OPKIT_OPS_CONTROL_FLOW_HPP_
#define OPKIT_OPS_CONTROL_FLOW_HPP_

#include "opkit/base/algorithm.hpp"
#include "opkit/graph/body_inference.hpp"
#include "opkit/graph/gradient/gradients.hpp"
#include "opkit/graph/passes/dead_nodes.hpp"
#include "opkit/graph/subgraph.hpp"
#include "opkit/ops/support/body_operator.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline constexpr const char* kIfBranches[] = {"then_branch", "else_branch"};

// Returns the branch `name` of an If node. Throws kInvalidArgument if the node has no such branch,
// or if the branch's inputs or outputs do not fit the node.
inline NodeBody IfBranchOf(const OperatorDef& def, const char* name) {
  NodeBody branch;
  branch.name = name;
  branch.graph = SubgraphOf(def, name);
  if (!branch.graph) Throw(ErrorCode::kInvalidArgument, "If needs the subgraph '", name, "'");
  if (branch.graph->outputs().size() != def.outputs().size())
    Throw(ErrorCode::kInvalidArgument, "If: '", name, "' has ", branch.graph->outputs().size(),
          " outputs, expected those of the node, ", def.outputs().size());
  const auto captures = def.args().Get<std::vector<std::string>>("captures", {});
  if (captures.size() + 1 != def.inputs().size())
    Throw(ErrorCode::kInvalidArgument, "If: 'captures' names ", captures.size(),
          " values, expected one for each input after the condition, ", def.inputs().size() - 1);
  for (const Graph::Input& input : branch.graph->inputs()) {
    size_t i = 0;
    while (i < captures.size() && captures[i] != input.name) ++i;
    if (i == captures.size())
      Throw(ErrorCode::kInvalidArgument, "If: '", name, "' reads '", input.name,
            "', which is not among the captures, ", captures);
    branch.inputs.push_back(static_cast<int>(i) + 1);
  }
  return branch;
}

// Returns the value of the condition. Throws kTypeMismatch if it is not bool, kInvalidArgument if
// it is not one element.
inline bool IfCondition(const Tensor& condition) {
  if (condition.dtype() != DType::kBool)
    Throw(ErrorCode::kTypeMismatch, "If: the condition is ", condition, ", expected one bool");
  if (condition.numel() != 1)
    Throw(ErrorCode::kInvalidArgument, "If: the condition is ", condition, ", expected one bool");
  return *condition.data<bool>();
}

// Returns the indices of the node's inputs that one of its branches writes to. Skips a branch that
// does not fit the node, because inference refuses such a node.
inline std::vector<int> InputsThatBranchesRewrite(const OperatorDef& def) {
  std::vector<int> rewritten;
  for (const char* name : kIfBranches) try {
      const NodeBody branch = IfBranchOf(def, name);
      for (const int input : def.FindSubgraph(name)->MutatedInputs())
        if (!Contains(rewritten, branch.inputs[Index(input)]))
          rewritten.push_back(branch.inputs[Index(input)]);
    } catch (const Error&) {
    }
  return rewritten;
}

inline InferredBody InferIfBranch(const InferenceContext& c, const char* name) {
  const NodeBody branch = IfBranchOf(c.def(), name);
  return InferBody(c, *branch.graph, branch.inputs, name);
}

// Returns a shape that holds for both branches. An extent is unknown if the branches differ in it.
// The whole shape is unknown if their ranks differ.
inline SymbolicShape EitherShape(const SymbolicShape& a, const SymbolicShape& b) {
  if (!a.has_rank() || !b.has_rank() || a.rank() != b.rank()) return {};
  std::vector<Dim> dims;
  for (int i = 0; i < a.rank(); ++i) dims.push_back(Dim::Either(a[i], b[i]));
  return SymbolicShape(std::move(dims));
}

inline void InferIf(InferenceContext& c) {
  if (const Tensor* condition = c.input_constant(0)) {
    const InferredBody taken = InferIfBranch(c, kIfBranches[IfCondition(*condition) ? 0 : 1]);
    for (int o = 0; o < c.num_outputs(); ++o) {
      const auto i = static_cast<size_t>(o);
      c.SetOutput(o, taken.outputs[i].dtype, taken.outputs[i].shape);
      if (taken.data[i].initialized()) c.SetOutputData(o, taken.data[i]);
    }
    return;
  }
  // Ignore a branch whose inference fails for these shapes: a run does not take such a branch.
  // Exporters write, for example, "if the extent is 1, squeeze the axis".
  std::vector<TensorInfo> either[2];
  for (int branch = 0; branch < 2; ++branch) {
    static_cast<void>(IfBranchOf(c.def(), kIfBranches[branch]));
    try {
      either[branch] = InferIfBranch(c, kIfBranches[branch]).outputs;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kNotFound) throw;  // an unknown operator fails for all shapes
    }
  }
  if (either[0].empty()) std::swap(either[0], either[1]);
  if (either[0].empty()) return;
  for (int o = 0; o < c.num_outputs(); ++o) {
    const TensorInfo& first = either[0][Index(o)];
    const TensorInfo& second = either[1].empty() ? first : either[1][Index(o)];
    if (first.dtype != second.dtype && first.dtype != DType::kUndefined &&
        second.dtype != DType::kUndefined)
      Throw(ErrorCode::kTypeMismatch, "If: output ", o, " is ", first.dtype,
            " from one branch and ", second.dtype, " from the other");
    c.SetOutput(o, first.dtype != DType::kUndefined ? first.dtype : second.dtype,
                EitherShape(first.shape, second.shape));
  }
}

// Builds the gradient of one branch: a graph that reads what the branch reads and the gradients of
// the node's outputs.
class IfBranchBackward {
 public:
  // `seeds[o]` is the name for the gradient of output o; empty if it has none. No branch has a
  // value of that name.
  IfBranchBackward(const Graph& branch, const std::vector<std::string>& seeds) : graph_(branch) {
    GradientOptions options;
    options.allow_none = true;
    for (size_t o = 0; o < seeds.size(); ++o) {
      if (seeds[o].empty()) continue;
      std::string made = graph_.FreshName(branch.outputs()[o] + "_made");
      graph_.AddNode(OperatorDef("Identity", {branch.outputs()[o]}, {made}));
      graph_.AddInput(seeds[o], DType::kUndefined, {});
      options.more_seeds.emplace_back(std::move(made), seeds[o]);
    }
    std::vector<std::string> wanted;
    for (const Graph::Input& input : branch.inputs())
      if (input.info.dtype != DType::kBool && !IsInteger(input.info.dtype))
        wanted.push_back(input.name);
    for (const std::string& output : branch.outputs()) graph_.RemoveOutput(output);
    if (wanted.empty()) return;
    const auto [loss, seed] = options.more_seeds.front();
    options.seed = seed;
    options.more_seeds.erase(options.more_seeds.begin());
    gradients_ = AddGradients(graph_, loss, wanted, options);
  }
  bool Has(const std::string& capture) const {
    const auto found = gradients_.find(capture);
    return found != gradients_.end() && !found->second.IsEmpty();
  }
  // Adds an output: the gradient of a captured value, or zeros if the branch has none.
  void Return(const std::string& capture) {
    std::string name = graph_.FreshName(capture + "_grad_out");
    if (Has(capture)) {
      const GradientValue& gradient = gradients_.at(capture);
      if (gradient.IsSparse())
        Throw(ErrorCode::kUnsupported, "If: the gradient of the captured value '", capture,
              "' is sparse; the gradients of a branch are dense");
      graph_.AddNode(OperatorDef("Identity", {gradient.dense}, {name}));
    } else {
      if (!graph_.FindInput(capture)) graph_.AddInput(capture, DType::kUndefined, {});
      graph_.AddNode(OperatorDef("ZerosLike", {capture}, {name}));
    }
    graph_.AddOutput(std::move(name));
  }
  Graph Take() const { return RemoveDeadNodes(graph_); }

 private:
  Graph graph_;
  GradientMap gradients_;
};

OPKIT_NODE_GRADIENT(If) {
  const NodeBody branches[] = {IfBranchOf(Def(), kIfBranches[0]),
                               IfBranchOf(Def(), kIfBranches[1])};
  auto captures = Def().args().Get<std::vector<std::string>>("captures", {});
  const size_t captured = captures.size();
  OperatorDef node("If", Def().inputs(), {});
  std::vector<std::string> seeds;
  for (size_t o = 0; o < Def().outputs().size(); ++o) {
    const GradientValue& given = GradOut(static_cast<int>(o));
    seeds.emplace_back();
    if (given.IsEmpty()) continue;
    if (given.IsSparse())
      Throw(ErrorCode::kUnsupported, "the gradient of output ", o,
            " is sparse; those of If are dense");
    std::string name = StrCat("grad_given_", o);
    while (branches[0].graph->HasValue(name) || branches[1].graph->HasValue(name) ||
           Contains(captures, name))
      name += "_";
    seeds.back() = name;
    captures.push_back(name);
    node.Input(given.dense);
  }
  IfBranchBackward then(*branches[0].graph, seeds), otherwise(*branches[1].graph, seeds);
  for (size_t i = 0; i < captured; ++i)
    if (then.Has(captures[i]) || otherwise.Has(captures[i])) {
      then.Return(captures[i]);
      otherwise.Return(captures[i]);
      node.Output(GI(static_cast<int>(i) + 1));
    }
  if (node.outputs().empty()) return;
  node.Arg("captures", captures);
  node.Subgraph(kIfBranches[0], MakeSubgraph(then.Take()));
  AddNode(std::move(node.Subgraph(kIfBranches[1], MakeSubgraph(otherwise.Take()))));
}

}  // namespace detail

class IfOp final : public BodyOperator {
 public:
  IfOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : BodyOperator(def, ws, config,
                     {detail::IfBranchOf(def, detail::kIfBranches[0]),
                      detail::IfBranchOf(def, detail::kIfBranches[1])}) {}
  bool RunOnDevice() override { return RunBody(detail::IfCondition(Input(0)) ? 0 : 1), true; }
};

OPKIT_STANDARD_OPERATOR(If, kMaker, IfOp)
    .NumInputs(1, 1 << 20)
    .NumOutputs(1, 1 << 20)
    .Input(0, "cond", "one element", {DType::kBool})
    .Input(1, "captures", "values that the branches read")
    .Output(0, "outputs", "those of the branch that is taken, in its order")
    .Arg<std::vector<std::string>>("captures",
                                   "the names that the inputs behind `cond` have in the branches")
    .RunsSubgraphs()
    .MutatesInputs(detail::InputsThatBranchesRewrite)
    .Infer(detail::InferIf)
    .Cost([](auto&...) { return OpCost(); })
    .Doc(
        "Runs the subgraph `then_branch` if `cond` holds, and `else_branch` if it does not. "
        "The inputs of a branch are captured values, by name; what is said of the outputs "
        "before the run is what both branches agree on.");

}}  // namespace opkit

#endif  // OPKIT_OPS_CONTROL_FLOW_HPP_
