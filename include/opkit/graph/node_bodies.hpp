// RunsBodies: the interface by which an operator such as If shows the graphs of its node ("bodies")
// to the plan. The plan selects kernels and plans memory for their nodes together with its own.
#ifndef OPKIT_GRAPH_NODE_BODIES_HPP_
#define OPKIT_GRAPH_NODE_BODIES_HPP_

#include <vector>

#include "opkit/graph/graph_subgraph.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// A graph that a node carries. A body that is not `apart` reads and writes the node's own tensors:
// the graph's outputs are the node's outputs, by position, and `inputs` has the number of the
// node's input for each input of the graph. A body that is `apart` has inputs and outputs of its
// own, outside the plan's memory, so that it can run several times with other tensors.
struct NodeBody {
  const char* name = "";  // of the node's subgraph, such as "then_branch"
  const Graph* graph = nullptr;
  std::vector<int> inputs = {};
  bool apart = false;
};

// Runs a body that was planned together with the enclosing graph. Values between the body's nodes
// lie in the memory of the enclosing graph's plan.
class BodyRunner {
 public:
  // Throws kCancelled if the run of the enclosing graph has failed or was given up.
  virtual void RunBody() = 0;
  // Returns the tensor that a body apart reads as its input i, or makes as its output o. A node of
  // the body writes to the memory that the output's tensor has, if it is large enough. An output
  // that no node makes is the tensor of an input or a constant, and must not be changed.
  virtual Tensor& BodyInput(size_t i) = 0;
  virtual Tensor& BodyOutput(size_t o) = 0;

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
  // For a body apart: returns the types that its inputs have in every run of the body, for the
  // types of the node's inputs.
  virtual std::vector<TensorInfo> TypesInBody(int number,
                                              const std::vector<TensorInfo>& inputs) const {
    return static_cast<void>(number), inputs;
  }

 protected:
  ~RunsBodies() = default;
};

}}  // namespace opkit

#endif  // OPKIT_GRAPH_NODE_BODIES_HPP_
