// SimpleNet: a graph run node after node in a workspace, where every value can be looked at: for
// debugging, and to measure what each node costs. Tests compare Compile and Executor with it.
#ifndef OPKIT_GRAPH_SIMPLE_NET_HPP_
#define OPKIT_GRAPH_SIMPLE_NET_HPP_

#include "opkit/graph/graph.hpp"
#include "opkit/graph/net_benchmark.hpp"
#include "opkit/op/create_operator.hpp"

namespace opkit::inline OPKIT_ABI {

// Inputs of the graph are tensors in the workspace, outputs and everything between stay there.
// Constants are put there and share the graph's memory. The net copies the graph but not the
// workspace, which must outlive it; several nets may work in one workspace. Kernels are those that
// Compile would choose for the inputs that are in the workspace when the net is made. Not
// synchronised.
//
//   Workspace ws;
//   *ws.CreateTensor("X") = x;
//   SimpleNet net(graph, &ws);
//   net.Run();
//   const Tensor& y = *ws.GetTensor("Y");
//   std::puts(ToString(net.Benchmark({.runs = 20})).c_str());
class SimpleNet : public Observable<SimpleNet> {
 public:
  // Errors: as Check(graph), which finds outputs that nothing makes; kNotFound, with the nearest
  // name, for an input that is not in the workspace; kAlreadyExists where another tensor has the
  // name of a constant; as CreateOperator. An error removes from the workspace all that the
  // constructor added.
  SimpleNet(Graph graph, Workspace* ws);

  // Runs every node to completion, in the graph's order. True, or throws the Error of the first
  // node that fails: later ones do not run, and its index is the workspace's
  // last_failed_op_net_position. Error (kTypeMismatch, kInvalidArgument) before anything runs for
  // an input whose dtype or shape is not what the graph declares.
  bool Run();

  // Times every node alone and the net as a whole, observers included. Error (kInvalidArgument)
  // without runs; the errors of Run.
  NetBenchmark Benchmark(const NetBenchmarkOptions& options = {});

  const Graph& graph() const { return graph_; }
  Workspace* workspace() const { return workspace_; }
  int num_ops() const { return static_cast<int>(ops_.size()); }
  // The operators in the order they run; an operator's net_position() is its node's index.
  OperatorBase& op(int i) {
    if (i < 0 || i >= num_ops())
      Throw(ErrorCode::kOutOfRange, "operator ", i, " of a net that has ", num_ops());
    return *ops_[detail::Index(i)];
  }

 private:
  const Graph graph_;
  Workspace* workspace_;
  std::vector<std::unique_ptr<OperatorBase>> ops_;
};

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/simple_net.ipp"
#endif

#endif  // OPKIT_GRAPH_SIMPLE_NET_HPP_
