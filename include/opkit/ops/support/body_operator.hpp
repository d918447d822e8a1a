// BodyOperator: the base of standard operators that run graphs which their node carries.
#ifndef OPKIT_OPS_SUPPORT_BODY_OPERATOR_HPP_
#define OPKIT_OPS_SUPPORT_BODY_OPERATOR_HPP_

#include "opkit/graph/executor.hpp"
#include "opkit/graph/subgraph.hpp"
#include "opkit/ops/support/standard_operator.hpp"

namespace opkit::inline OPKIT_ABI {

// A graph of a node, and for each input of the graph the number of the node's input.
struct NodeBody {
  const char* name = "";
  const Graph* graph = nullptr;
  std::vector<int> inputs;
};

class BodyOperator : public StandardOperator {
 public:
  BodyOperator(const OperatorDef& def, Workspace* ws, const KernelConfig* config,
               std::vector<NodeBody> bodies)
      : StandardOperator(def, ws, config),
        bodies_(std::move(bodies)),
        executors_(bodies_.size()),
        handed_out_(def.outputs().size(), nullptr) {}

 protected:
  // Runs a body. Its outputs become the node's, by position.
  void RunBody(int number) {
    const NodeBody& body = bodies_[detail::Index(number)];
    try {
      std::vector<NamedTensor> inputs;
      for (size_t i = 0; i < body.inputs.size(); ++i)
        inputs.push_back({body.graph->inputs()[i].name, Input(body.inputs[i])});
      ReleaseOutputs();
      const NamedTensors outputs = ExecutorOf(number).Run(inputs);
      int o = 0;
      for (const NamedTensor& output : outputs) {
        if (HasOutput(o)) {
          handed_out_[detail::Index(o)] = output.tensor.storage().get();
          SetOutputTensor(o, output.tensor);
        }
        ++o;
      }
    } catch (...) {
      detail::RethrowInContext(StrCat("in ", body.name));
    }
  }

 private:
  // Runs one node after the other on this thread, and kernels on its pool: a graph inside a node is
  // usually small.
  Executor& ExecutorOf(int number) {
    std::optional<Executor>& executor = executors_[detail::Index(number)];
    if (!executor) {
      PlanOptions options;
      options.threads = ThreadPool::Current().threads();
      options.mode = ReplayMode::kWalk;
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

  std::vector<NodeBody> bodies_;
  std::vector<std::optional<Executor>> executors_;  // by body
  std::vector<const void*> handed_out_;             // addresses of storages, for comparison only
};

}  // namespace opkit

#endif  // OPKIT_OPS_SUPPORT_BODY_OPERATOR_HPP_
