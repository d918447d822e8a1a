// The graphs that a node carries and runs itself, as the operator tells them to its plan, which
// plans their nodes with its own: kernels, memory, steps.
#ifndef OPKIT_GRAPH_NODE_BODIES_HPP_
#define OPKIT_GRAPH_NODE_BODIES_HPP_

#include <vector>

#include "opkit/graph/carried_graph.hpp"

namespace opkit::inline OPKIT_ABI {

// A graph of a node, whose outputs are the node's by position, and for each input of the graph the
// number of the node's input.
struct NodeBody {
  const char* name = "";  // by which the node carries it
  const Graph* graph = nullptr;
  std::vector<int> inputs;
};

// Runs a body that was planned with the graph around it: it reads and writes the node's own
// tensors, in the memory of that graph's plan.
class BodyRunner {
 public:
  virtual void RunBody() = 0;

 protected:
  ~BodyRunner() = default;
};

// An operator that runs graphs of its node implements it beside its own class.
class RunsBodies {
 public:
  // The same in every call. Of several a run takes one.
  virtual const std::vector<NodeBody>& bodies() const = 0;
  // One for each body, valid as long as the operator runs; null for a body that the plan leaves to
  // the operator.
  virtual void UseRunners(std::vector<BodyRunner*> runners) = 0;

 protected:
  ~RunsBodies() = default;
};

}  // namespace opkit

#endif  // OPKIT_GRAPH_NODE_BODIES_HPP_
