// RunsBodies: the interface by which an operator such as If shows the graphs of its node ("bodies")
// to the plan. The plan selects kernels and plans memory for their nodes together with its own.
#ifndef OPKIT_GRAPH_NODE_BODIES_HPP_
#define OPKIT_GRAPH_NODE_BODIES_HPP_

#include <vector>

#include "opkit/graph/graph_subgraph.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// A graph that a node carries. The graph's outputs are the node's outputs, by position. `inputs`
// has the number of the node's input for each input of the graph.
struct NodeBody {
  const char* name = "";  // of the node's subgraph, such as "then_branch"
  const Graph* graph = nullptr;
  std::vector<int> inputs;
};

// Runs a body that was planned together with the enclosing graph. The body reads and writes the
// node's own tensors, in the memory of the enclosing graph's plan.
class BodyRunner {
 public:
  virtual void RunBody() = 0;

 protected:
  ~BodyRunner() = default;
};

// The interface of an operator that runs graphs of its node; a second base class of the operator.
class RunsBodies {
 public:
  // Returns the same bodies in every call. If there are several, a run executes one of them.
  virtual const std::vector<NodeBody>& bodies() const = 0;
  // Sets the runner of each body; null for a body that the operator must run itself. The runners
  // live as long as the operator runs.
  virtual void UseRunners(std::vector<BodyRunner*> runners) = 0;

 protected:
  ~RunsBodies() = default;
};

}}  // namespace opkit

#endif  // OPKIT_GRAPH_NODE_BODIES_HPP_
