// If: runs one of the two graphs ("branches") of its node. The base class BodyOperator runs the
// graphs.
#ifndef OPKIT_OPS_CONTROL_FLOW_HPP_
#define OPKIT_OPS_CONTROL_FLOW_HPP_

#include "opkit/base/algorithm.hpp"
#include "opkit/graph/body_inference.hpp"
#include "opkit/graph/subgraph.hpp"
#include "opkit/ops/support/body_operator.hpp"

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

}  // namespace detail

class IfOp final : public BodyOperator {
 public:
  IfOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : BodyOperator(def, ws, config,
                     {detail::IfBranchOf(def, detail::kIfBranches[0]),
                      detail::IfBranchOf(def, detail::kIfBranches[1])}) {}
  bool RunOnDevice() override { return RunBody(detail::IfCondition(Input(0)) ? 0 : 1), true; }
};

OPKIT_STANDARD_OPERATOR(If, kNotImplemented, IfOp)
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
