// SimpleNet: runs a graph node by node in a workspace, in which a program can read every value. For
// debugging, and to measure the time of each node. Tests compare Compile and Executor with it.
#ifndef OPKIT_GRAPH_SIMPLE_NET_HPP_
#define OPKIT_GRAPH_SIMPLE_NET_HPP_

#include "opkit/graph/graph.hpp"
#include "opkit/graph/net_benchmark.hpp"
#include "opkit/op/create_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The workspace has the inputs; a run leaves outputs and all other values there. The constructor
// adds the constants, which share the graph's memory. The net copies the graph but not the
// workspace, which must outlive the net. Several nets may use one workspace. Selects the kernels
// that Compile would select for the inputs in the workspace at construction. Not synchronised.
//
//   Workspace ws;
//   *ws.CreateTensor("X") = x;
//   SimpleNet net(graph, &ws);
//   net.Run();
//   const Tensor& y = *ws.GetTensor("Y");
//   std::puts(ToString(net.Benchmark({.runs = 20})).c_str());
class SimpleNet : public detail::Observable<SimpleNet> {
 public:
  // Throws the errors of Check(graph) and CreateOperator. Throws kNotFound, with the nearest name,
  // for an input that is not in the workspace, and kAlreadyExists if a blob that differs from a
  // constant has its name. An error removes from the workspace all that the constructor added.
  SimpleNet(Graph graph, Workspace* ws);

  // Runs every node to completion, in topological order, and returns true. Throws kTypeMismatch,
  // kUninitialized or kInvalidArgument before a node runs if the dtype or shape of an input differs
  // from the graph's declaration. Throws the Error of the first node that fails: later nodes do not
  // run, and the workspace's last_failed_op_net_position is the index of the failed node.
  bool Run();

  // Times every node alone and the whole net, observers included. Throws kInvalidArgument if
  // options.runs < 1 or options.warmup < 0, and the errors of Run.
  NetBenchmark Benchmark(const NetBenchmark::Options& options = {});

  const Graph& graph() const { return graph_; }
  Workspace* workspace() const { return workspace_; }
  int num_ops() const { return static_cast<int>(ops_.size()); }
  // Returns operator i in the order of the run. Its net_position() is the index of its node. Throws
  // kOutOfRange.
  OperatorBase& op(int i) {
    if (i < 0 || i >= num_ops())
      Throw(ErrorCode::kOutOfRange, "there is no operator ", i, ": the net has ", num_ops(),
            " operators");
    return *ops_[detail::Index(i)];
  }

 private:
  const Graph graph_;
  Workspace* workspace_;
  std::vector<std::unique_ptr<OperatorBase>> ops_;
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/simple_net.ipp"
#endif

#endif  // OPKIT_GRAPH_SIMPLE_NET_HPP_
