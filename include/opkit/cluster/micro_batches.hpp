// MicroBatches: a graph that runs another one several times, on parts of a batch. On the stages of
// a Pipeline, the stages then work on different parts at the same time (GPipe, Huang et al. 2019).
#ifndef OPKIT_CLUSTER_MICRO_BATCHES_HPP_
#define OPKIT_CLUSTER_MICRO_BATCHES_HPP_

#include "opkit/graph/graph_inference.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct MicroBatchOptions {
  // The inputs of which each micro-batch gets a part of the rows. All micro-batches read the other
  // inputs, such as weights.
  std::vector<std::string> batched = {};
  // The outputs that are added up over the micro-batches, in their order, and those that are also
  // divided by their number. The other outputs have the rows of all micro-batches, or, if they
  // depend on no batched input, are as they were.
  std::vector<std::string> summed = {}, averaged = {};
};

// Returns a graph of the same inputs and outputs for `count` times the rows. `graph` is for one
// micro-batch: the batched inputs of the result have `count` times its first extent. If that is
// open, a run throws kInvalidArgument for rows that are no multiple of `count`. Nodes keep their
// processes. The forward nodes of all micro-batches come before the gradient nodes
// (OperatorDef::is_gradient_op).
//
//   graph = Pipeline(graph, processes).graph;  // first: a gradient is then where its weight is
//   AddGradients(graph, "loss", {"W"});        // and AddOutput("loss"), AddOutput(gradient of W)
//   graph = MicroBatches(graph, 8, {.batched = {"X"}, .averaged = {"loss", "W_grad"}});
//
// Throws kInvalidArgument for a count below 1, a batched input without rows, an output in both
// lists, an output of rank 0 that is in no list, and one in a list that depends on no batched
// input; kNotFound for a name that is no input or no output; kUnsupported for a graph that
// communicates or that rewrites values.
Graph MicroBatches(const Graph& graph, int count, const MicroBatchOptions& options);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/cluster/impl/micro_batches.ipp"
#endif

#endif  // OPKIT_CLUSTER_MICRO_BATCHES_HPP_
