// Images in blocks of channels, and graphs of nodes with constants, for tests of the "onednn"
// backend.
#ifndef OPKIT_TESTS_BACKENDS_ONEDNN_IMAGES_HPP_
#define OPKIT_TESTS_BACKENDS_ONEDNN_IMAGES_HPP_

#include <doctest/doctest.h>

#include "opkit/backends/onednn/layout.hpp"
#include "opkit/graph/executor.hpp"
#include "support/compare_backends.hpp"
#include "support/tensors.hpp"

namespace onednn_test {

using namespace opkit;
using Ints = std::vector<int64_t>;

inline Tensor InBlocks(const Tensor& x, int64_t block) {
  return ConvertLayout(x, detail::OnednnBlocked(x.shape(), block));
}

// A graph of one node whose first input comes from outside, the others being constants.
inline Graph GraphOf(const std::string& op, const std::vector<Tensor>& inputs,
                     const Arguments& args) {
  Graph graph;
  OperatorDef node(op, {}, {"y"}, args);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = StrCat("i", i);
    if (i == 0)
      graph.AddInput(name, inputs[i].dtype(), inputs[i].shape());
    else
      graph.AddConstant(name, inputs[i]);
    node.Input(name);
  }
  graph.AddNode(node);
  graph.AddOutput("y");
  return graph;
}

// The graph with all nodes on the reference backend.
inline Graph Plainly(Graph graph) {
  for (int i = 0; i < graph.num_nodes(); ++i)
    graph.ReplaceNode(i, OperatorDef(graph.node(i)).Backends("reference", kRequired));
  return graph;
}

// Runs the graph twice on `x` with this many threads; returns the first output of the second run.
inline Tensor RunGraph(const Graph& graph, const Tensor& x, int threads = 1,
                       const PassList* passes = nullptr) {
  Executor executor(
      Compile(graph, {.threads = threads, .passes = passes, .memory = {.verify = true}}));
  executor.Run({{graph.inputs()[0].name, x}});
  return executor.Run({{graph.inputs()[0].name, x}}).Get(graph.outputs()[0]);
}

// A node with constants as the plain operator computes it, on 1 and on 3 threads. Returns the
// configuration that was chosen for it, of the backend "onednn".
inline KernelConfig CheckConstants(const std::string& op, const std::vector<Tensor>& inputs,
                                   const Arguments& args = {}) {
  std::string node = op + " of";
  for (const Tensor& input : inputs) node += " " + ToString(input.shape());
  for (const auto& arg : args) node += ", " + arg.name + " " + ToString(arg.value);
  INFO(node);
  const Graph graph = GraphOf(op, inputs, args);
  const Plan plan = Compile(graph);
  const NodeChoice choice = plan.choice(0);
  CHECK(choice.kernel->backend == "onednn");
  const Tensor expected = Invoke(op, inputs, args, {.backends = "reference"})[0];
  for (const int threads : {1, 3}) CheckClose(RunGraph(graph, inputs[0], threads), expected);
  return choice.config;
}

// A light operator in blocks of 8 and of 16 as the plain one computes it; `others` are its further
// inputs. It keeps the layout, and is passed over where its input is in the standard one.
inline void CheckInBlocks(const std::string& op, const Tensor& x, const Arguments& args = {},
                          const std::vector<Tensor>& others = {}) {
  INFO(op, " of ", ToString(x.shape()));
  std::vector<Tensor> inputs{x};
  inputs.insert(inputs.end(), others.begin(), others.end());
  const Tensor expected = Invoke(op, inputs, args, {.backends = "reference", .num_outputs = 1})[0];
  CHECK_FALSE(IsTakenBy("onednn", op, inputs, args, 1));
  for (const int64_t block : {8, 16}) {
    inputs[0] = InBlocks(x, block);
    CHECK(IsTakenBy("onednn", op, inputs, args, 1));
    CheckSameOn("onednn", op, inputs, args);
    CheckClose(Invoke(op, inputs, args, {.backends = "onednn", .num_outputs = 1})[0], expected);
  }
}

}  // namespace onednn_test

#endif  // OPKIT_TESTS_BACKENDS_ONEDNN_IMAGES_HPP_
