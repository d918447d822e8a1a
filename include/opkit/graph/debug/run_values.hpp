// RunKeepingValues: a run that copies what every node of a plan makes, to find where a result goes
// wrong. The plan stays what it is: the same kernels write to the same memory in the same order.
#ifndef OPKIT_GRAPH_DEBUG_RUN_VALUES_HPP_
#define OPKIT_GRAPH_DEBUG_RUN_VALUES_HPP_

#include "opkit/graph/executor.hpp"

namespace opkit::inline OPKIT_ABI {

struct NodeValue {
  int node = 0;      // of Plan::graph()
  std::string name;  // of the value
  Tensor tensor;     // a dense copy that the host reaches, in the standard layout
};

// Runs with these inputs, besides those that are bound, and copies each output of each node when
// its operator has written it: afterwards its memory may hold another value. In an order in which
// the nodes can run. Left out are values between nodes that one kernel computes together, values
// inside the bodies of nodes, and those of an operator that is still at work when it returns.
// Errors: as Executor::Run and Executor::op; a plan that leaves shapes of its inputs open runs once
// before this, with inputs of the same shapes.
//
//   for (const NodeValue& value : RunKeepingValues(executor, {{"X", x}}))
//     WriteNpy(value.name + ".npy", value.tensor);
std::vector<NodeValue> RunKeepingValues(Executor& executor,
                                        const std::vector<NamedTensor>& inputs = {});

namespace detail {

// The same, but nodes read `values`, those of another run of the graph, in place of what the nodes
// before them made here: each node computes alone what it makes of the other run's values.
std::vector<NodeValue> RunNodesOnValues(Executor& executor, const std::vector<NamedTensor>& inputs,
                                        const std::vector<NodeValue>& values);

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/debug/impl/run_values.ipp"
#endif

#endif  // OPKIT_GRAPH_DEBUG_RUN_VALUES_HPP_
