// BodyOperator: the base of the standard operators whose node carries graphs, such as If and
// Subgraph.
#ifndef OPKIT_OPS_SUPPORT_BODY_OPERATOR_HPP_
#define OPKIT_OPS_SUPPORT_BODY_OPERATOR_HPP_

#include "opkit/device/copy.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/graph/node_bodies.hpp"
#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Runs the graphs ("bodies") of its node. In a plan, the plan's runners execute the bodies. Outside
// a plan the operator compiles a body on its first run and keeps the executor.
class BodyOperator : public StandardOperator, public RunsBodies {
 public:
  BodyOperator(const OperatorDef& def, Workspace* ws, const KernelConfig* config,
               std::vector<NodeBody> bodies)
      : StandardOperator(def, ws, config),
        bodies_(std::move(bodies)),
        executors_(bodies_.size()),
        handed_out_(def.outputs().size(), nullptr) {
    OPKIT_ASSERT(bodies_.size() <= kMostBodies);
  }

  const std::vector<NodeBody>& bodies() const final { return bodies_; }
  void UseRunners(std::vector<BodyRunner*> runners) final {
    handed_on_.clear();
    for (size_t i = 0; i < bodies_.size(); ++i)
      if ((runners_[i] = runners[i])) FindHandedOn(static_cast<int>(i));
  }

 protected:
  // Runs body `number`. The body's outputs become the node's outputs, by position. Adds the body's
  // name to errors.
  void RunBody(int number) {
    try {
      if (BodyRunner* const runner = runners_[detail::Index(number)]) {
        runner->RunBody();
        for (const HandedOn& one : handed_on_)
          if (one.body == number)
            OutputTensorCopyFrom(one.output, one.constant ? *one.constant : Input(one.input));
        return;
      }
      RunAlone(number);
    } catch (...) {
      detail::RethrowInContext(StrCat("in ", bodies_[detail::Index(number)].name));
    }
  }

 private:
  // An output of the node that its body returns unchanged: one of the body's inputs or constants.
  // No node of the body writes this output, so RunBody copies it.
  struct HandedOn {
    int body, output, input;
    const Tensor* constant;
  };

  // Records the outputs for which body `number` returns one of its inputs or constants unchanged.
  void FindHandedOn(int number) {
    const NodeBody& body = bodies_[detail::Index(number)];
    for (int o = 0; o < OutputSize(); ++o) {
      const std::string& name = body.graph->outputs()[detail::Index(o)];
      if (!HasOutput(o) || body.graph->Producer(name) >= 0) continue;
      HandedOn one{number, o, -1, body.graph->FindConstant(name)};
      for (size_t i = 0; i < body.inputs.size(); ++i)
        if (body.graph->inputs()[i].name == name) one.input = body.inputs[i];
      handed_on_.push_back(one);
    }
  }
  // Runs a body outside a plan, with an executor of its own.
  void RunAlone(int number) {
    const NodeBody& body = bodies_[detail::Index(number)];
    std::vector<NamedTensor> inputs;
    for (size_t i = 0; i < body.inputs.size(); ++i)
      inputs.push_back({body.graph->inputs()[i].name, Input(body.inputs[i])});
    ReleaseOutputs();
    Executor& executor = ExecutorOf(number);
    const NamedTensors outputs = executor.Run(inputs);
    int o = 0;
    for (const NamedTensor& output : outputs) {
      const bool is_made = executor.plan().graph().Producer(output.name) >= 0;
      if (HasOutput(o) && (!is_made || !IsHere(output.tensor))) {
        // Copies an input or a constant of the body, so that a later node that rewrites the output
        // does not change it. Also copies a result from another device.
        Copy(output.tensor, Output(o));
      } else if (HasOutput(o)) {
        handed_out_[detail::Index(o)] = output.tensor.storage().get();
        SetOutputTensor(o, output.tensor);
      }
      ++o;
    }
  }
  bool IsHere(const Tensor& tensor) const {
    return MemoryDevice(tensor.device()) == MemoryDevice(device());
  }
  // Returns the executor of a body; compiles the body at the first call. Nodes run one after the
  // other on this thread, kernels on its pool: a graph inside a node is usually small.
  Executor& ExecutorOf(int number) {
    std::optional<Executor>& executor = executors_[detail::Index(number)];
    if (!executor) {
      PlanOptions options;
      options.threads = ThreadPool::Current().threads();
      options.schedule.deterministic = true;
      executor.emplace(Compile(*bodies_[detail::Index(number)].graph, options));
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

  static constexpr size_t kMostBodies = 2;

  // The members that every run reads come first, in one cache line.
  BodyRunner* runners_[kMostBodies] = {};  // by body; null: no plan runs it
  std::vector<HandedOn> handed_on_;        // the outputs that bodies with a runner return unchanged
  std::vector<NodeBody> bodies_;
  std::vector<std::optional<Executor>> executors_;  // by body
  // For each output: the address of the storage that the last run returned. Only for comparisons.
  std::vector<const void*> handed_out_;
};

}}  // namespace opkit

#endif  // OPKIT_OPS_SUPPORT_BODY_OPERATOR_HPP_
