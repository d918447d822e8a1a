// Runs the graphs that operators of functions give to their program (OpResource::run_graph). Only
// the definitions of partitioners and of libraries include this file.
#ifndef OPKIT_GRAPH_HOSTED_GRAPH_HPP_
#define OPKIT_GRAPH_HOSTED_GRAPH_HPP_

#include "opkit/graph/abi_graph.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/op/boundary/host/resource_state.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A graph with its plan and executor. Input shapes are those of each run.
class PlannedHostedGraph final : public HostedGraph {
 public:
  explicit PlannedHostedGraph(const opkit_graph* graph)
      : HostedGraph(graph), executor_(Compile(GraphOfAbi(graph, &CopyConstant), Options())) {}

  void Run(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) override {
    const Graph& graph = executor_.plan().graph();
    if (inputs.size() != graph.inputs().size() || outputs.size() != graph.outputs().size())
      Throw(ErrorCode::kInvalidArgument, "run_graph() got ", inputs.size(), " inputs and ",
            outputs.size(), " outputs, but the graph has ", graph.inputs().size(), " and ",
            graph.outputs().size());
    for (size_t i = 0; i < inputs.size(); ++i) executor_.Bind(graph.inputs()[i].name, inputs[i]);
    for (size_t o = 0; o < outputs.size(); ++o) executor_.Bind(graph.outputs()[o], outputs[o]);
    const auto unbind = [&] {  // the tensors belong to the operator
      for (const Graph::Input& input : graph.inputs()) executor_.Bind(input.name, Tensor());
      for (const std::string& output : graph.outputs()) executor_.Bind(output, Tensor());
    };
    try {
      executor_.Run();
    } catch (...) {
      unbind();
      throw;
    }
    unbind();
  }

 private:
  // Nodes run on the operator's thread, kernels on the operator's pool.
  static PlanOptions Options() {
    PlanOptions options;
    options.threads = ThreadPool::Current().threads();
    options.schedule.mode = ReplayMode::kWalk;
    return options;
  }

  Executor executor_;
};

inline IntrusivePtr<HostedGraph> MakeHostedGraph(const opkit_graph* graph) {
  return MakeIntrusive<PlannedHostedGraph>(graph);
}
[[maybe_unused]] OPKIT_IMAGE_LOCAL inline const bool kFillsMakeHostedGraph =
    g_make_hosted_graph.Fill(&MakeHostedGraph);

}  // namespace detail

}}  // namespace opkit

#endif  // OPKIT_GRAPH_HOSTED_GRAPH_HPP_
