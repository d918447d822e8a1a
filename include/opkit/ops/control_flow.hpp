// If: runs one of the two graphs of its node. A graph is compiled when it first runs, and kept.
#ifndef OPKIT_OPS_CONTROL_FLOW_HPP_
#define OPKIT_OPS_CONTROL_FLOW_HPP_

#include "opkit/graph/executor.hpp"
#include "opkit/graph/subgraph.hpp"
#include "opkit/ops/support/standard_operator.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

inline constexpr const char* kIfBranches[] = {"then_branch", "else_branch"};

// A branch of a node, and for each input of the branch the number of the node's input.
struct IfBranch {
  const Graph* graph = nullptr;
  std::vector<int> inputs;
};

// Error (kInvalidArgument) if the node has no such branch, or its inputs or outputs do not fit.
inline IfBranch IfBranchOf(const OperatorDef& def, const char* name) {
  IfBranch branch;
  branch.graph = SubgraphOf(def, name);
  if (!branch.graph) Throw(ErrorCode::kInvalidArgument, "If needs the subgraph '", name, "'");
  if (branch.graph->outputs().size() != def.outputs().size())
    Throw(ErrorCode::kInvalidArgument, "If: '", name, "' has ", branch.graph->outputs().size(),
          " outputs, expected those of the node, ", def.outputs().size());
  const auto captures = def.args().Get<std::vector<std::string>>("captures", {});
  if (captures.size() + 1 != def.inputs().size())
    Throw(ErrorCode::kInvalidArgument, "If: 'captures' names ", captures.size(),
          " values, expected one for each input behind the condition, ", def.inputs().size() - 1);
  for (const GraphInput& input : branch.graph->inputs()) {
    size_t i = 0;
    while (i < captures.size() && captures[i] != input.name) ++i;
    if (i == captures.size())
      Throw(ErrorCode::kInvalidArgument, "If: '", name, "' reads '", input.name,
            "', which is not among the captures, ", captures);
    branch.inputs.push_back(static_cast<int>(i) + 1);
  }
  return branch;
}

// Error (kInvalidArgument, kTypeMismatch) unless it is one bool.
inline bool IfCondition(const Tensor& condition) {
  if (condition.dtype() != DType::kBool)
    Throw(ErrorCode::kTypeMismatch, "If: the condition is ", condition, ", expected one bool");
  if (condition.numel() != 1)
    Throw(ErrorCode::kInvalidArgument, "If: the condition is ", condition, ", expected one bool");
  return *condition.data<bool>();
}

// The result of inferring a branch for inputs of these types and constants. Inference passes over a
// graph several times, and so over the graphs in its nodes; without these results each level of
// nesting would multiply the passes.
struct InferredBranch {
  const Graph* graph = nullptr;
  std::vector<TensorInfo> inputs, outputs;  // without their constants, which are
  std::vector<Tensor> known, data;  // of inputs and outputs; a Tensor without dtype: not constant

  bool IsOf(const Graph* other, const std::vector<TensorInfo>& infos,
            const std::vector<Tensor>& constants) const {
    if (graph != other) return false;
    for (size_t i = 0; i < infos.size(); ++i)
      if (infos[i].dtype != inputs[i].dtype || infos[i].shape != inputs[i].shape ||
          Attribute(constants[i]) != Attribute(known[i]))
        return false;
    return true;
  }
};
// The results so far; set while an If that is in no other If is inferred.
inline constinit thread_local std::vector<InferredBranch>* t_inferred_branches = nullptr;

class InferredBranchesScope {
 public:
  InferredBranchesScope() {
    if (!t_inferred_branches) t_inferred_branches = &own_;
  }
  InferredBranchesScope(const InferredBranchesScope&) = delete;
  InferredBranchesScope& operator=(const InferredBranchesScope&) = delete;
  ~InferredBranchesScope() {
    if (t_inferred_branches == &own_) t_inferred_branches = nullptr;
  }

 private:
  std::vector<InferredBranch> own_;
};

inline InferredBranch InferIfBranch(const InferenceContext& c, const char* name) {
  const IfBranch branch = IfBranchOf(c.def(), name);
  InferredBranch result;
  result.graph = branch.graph;
  for (const int input : branch.inputs) {
    result.inputs.push_back(c.input(input));
    result.inputs.back().constant = nullptr;
    const Tensor* constant = c.input_constant(input);
    result.known.push_back(constant ? *constant : Tensor());
  }
  for (const InferredBranch& known : *t_inferred_branches)
    if (known.IsOf(result.graph, result.inputs, result.known)) return known;
  const auto infer = [&] {
    std::vector<GraphInput> given;
    for (size_t i = 0; i < branch.inputs.size(); ++i) {
      given.push_back({branch.graph->inputs()[i].name, result.inputs[i]});
      if (result.known[i].initialized()) given.back().info.constant = &result.known[i];
    }
    const GraphView view(*branch.graph);
    const GraphTypes types = InferGraph(view, given);
    for (const int value : view.outputs()) {
      result.outputs.push_back(types[value]);
      result.outputs.back().constant = nullptr;
      result.data.push_back(types[value].constant ? *types[value].constant : Tensor());
    }
  };
  InContext(infer, [&] { return StrCat("in ", name, " of ", ToString(c.def())); });
  t_inferred_branches->push_back(result);
  return result;
}

inline SymbolicShape EitherShape(const SymbolicShape& a, const SymbolicShape& b) {
  if (!a.has_rank() || !b.has_rank() || a.rank() != b.rank()) return {};
  std::vector<Dim> dims;
  for (int i = 0; i < a.rank(); ++i) dims.push_back(a[i] == b[i] ? a[i] : Dim());
  return SymbolicShape(std::move(dims));
}

inline void InferIf(InferenceContext& c) {
  const InferredBranchesScope scope;
  if (const Tensor* condition = c.input_constant(0)) {
    const InferredBranch taken = InferIfBranch(c, kIfBranches[IfCondition(*condition) ? 0 : 1]);
    for (int o = 0; o < c.num_outputs(); ++o) {
      const auto i = static_cast<size_t>(o);
      c.SetOutput(o, taken.outputs[i].dtype, taken.outputs[i].shape);
      if (taken.data[i].initialized()) c.SetOutputData(o, taken.data[i]);
    }
    return;
  }
  // A branch that fails for these shapes is not the one taken: exporters write "if the extent is 1,
  // squeeze it".
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

class IfOp final : public StandardOperator {
 public:
  IfOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : StandardOperator(def, ws, config), handed_out_(def.outputs().size(), nullptr) {
    for (int i = 0; i < 2; ++i) branches_[i] = detail::IfBranchOf(def, detail::kIfBranches[i]);
  }
  bool RunOnDevice() override {
    const int taken = detail::IfCondition(Input(0)) ? 0 : 1;
    const detail::IfBranch& branch = branches_[taken];
    try {
      std::vector<NamedTensor> inputs;
      for (size_t i = 0; i < branch.inputs.size(); ++i)
        inputs.push_back({branch.graph->inputs()[i].name, Input(branch.inputs[i])});
      ReleaseOutputs();
      const NamedTensors outputs = ExecutorOf(taken).Run(inputs);
      int o = 0;
      for (const NamedTensor& output : outputs) {
        if (HasOutput(o)) {
          handed_out_[detail::Index(o)] = output.tensor.storage().get();
          SetOutputTensor(o, output.tensor);
        }
        ++o;
      }
    } catch (...) {
      detail::RethrowInContext(StrCat("in ", detail::kIfBranches[taken]));
    }
    return true;
  }

 private:
  // Runs one node after the other on this thread, and kernels on its pool: a graph inside a node is
  // usually small.
  Executor& ExecutorOf(int branch) {
    std::optional<Executor>& executor = executors_[branch];
    if (!executor) {
      PlanOptions options;
      options.threads = ThreadPool::Current().threads();
      options.mode = ReplayMode::kWalk;
      executor.emplace(Compile(*branches_[branch].graph, options));
    }
    return *executor;
  }
  // Releases the outputs of the last run, so that the executor can reuse their memory.
  void ReleaseOutputs() {
    for (int o = 0; o < OutputSize(); ++o) {
      const void* last = std::exchange(handed_out_[detail::Index(o)], nullptr);
      if (!last) continue;
      Tensor* output = Output(o);
      if (output->storage().get() == last) *output = Tensor(output->device());
    }
  }

  detail::IfBranch branches_[2];
  std::optional<Executor> executors_[2];
  std::vector<const void*> handed_out_;  // addresses of storages, for comparison only
};

OPKIT_STANDARD_OPERATOR_SCHEMA(If)
    .NumInputs(1, 1 << 20)
    .NumOutputs(1, 1 << 20)
    .Input(0, "cond", "one element", {DType::kBool})
    .Input(1, "captures", "values that the branches read")
    .Output(0, "outputs", "those of the branch that is taken, in its order")
    .Arg<std::vector<std::string>>("captures",
                                   "the names that the inputs behind `cond` have in the branches")
    .TensorInferenceFunction(detail::InferIf)
    .CostInferenceFunction([](auto&...) { return OpCost(); })
    .SetDoc(
        "Runs the subgraph `then_branch` if `cond` holds, and `else_branch` if it does not. "
        "The inputs of a branch are captured values, by name; what is said of the outputs "
        "before the run is what both branches agree on.");
OPKIT_REGISTER_CPU_OPERATOR(If, IfOp);
OPKIT_GRADIENT_NOT_IMPLEMENTED_YET(If);

}  // namespace opkit

#endif  // OPKIT_OPS_CONTROL_FLOW_HPP_
