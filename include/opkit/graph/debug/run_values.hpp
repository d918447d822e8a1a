// RunKeepingValues: runs a plan and copies the outputs of every node, to find the node whose result
// is wrong. The plan is unchanged: the same kernels write to the same memory in the same order.
#ifndef OPKIT_GRAPH_DEBUG_RUN_VALUES_HPP_
#define OPKIT_GRAPH_DEBUG_RUN_VALUES_HPP_

#include "opkit/graph/executor.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// An output of a node, copied during a run.
struct NodeValue {
  int node = 0;      // index in Plan::graph()
  std::string name;  // name of the value
  Tensor tensor;     // a dense copy in host memory, in the standard layout
};

// Runs with these inputs and the bound tensors. Copies each output of a node as soon as its
// operator has written it, since its memory may have another value later. Returns the copies in
// topological order of the nodes. Omits values between nodes that one kernel computes together,
// values in the bodies of nodes, and values of operators that return before their work is done.
// Throws the errors of Executor::Run and Executor::op. If input shapes of the graph are unknown,
// run the executor once before, with inputs of the same shapes.
//
//   for (const NodeValue& value : RunKeepingValues(executor, {{"X", x}}))
//     std::puts((value.name + " " + ToString(value.tensor)).c_str());
std::vector<NodeValue> RunKeepingValues(Executor& executor,
                                        const std::vector<NamedTensor>& inputs = {});

namespace detail {

// Runs like RunKeepingValues, but each node reads `values`, which another run of the graph made,
// instead of the values that earlier nodes made in this run.
std::vector<NodeValue> RunNodesOnValues(Executor& executor, const std::vector<NamedTensor>& inputs,
                                        const std::vector<NodeValue>& values);

}  // namespace detail
}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/debug/impl/run_values.ipp"
#endif

#endif  // OPKIT_GRAPH_DEBUG_RUN_VALUES_HPP_
