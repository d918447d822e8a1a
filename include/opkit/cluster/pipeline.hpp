// Pipeline: cuts a model into stages that run on several processes, one after the other. While a
// process works on one run, the process before it works on the next.
#ifndef OPKIT_CLUSTER_PIPELINE_HPP_
#define OPKIT_CLUSTER_PIPELINE_HPP_

#include "opkit/cluster/measured_times.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct PipelineOptions {
  // The shapes of inputs that the graph leaves open, for the costs of nodes.
  std::vector<Graph::Input> inputs = {};
  // Measured times of nodes. The other nodes take node_ns plus the time of their flops or of their
  // bytes, whichever is longer, by the cost function of their schema.
  MeasuredTimes times = {};
  double node_ns = 200;
  double flops_per_ns = 20;
  double bytes_per_ns = 10;
  // A message takes message_ns plus the time of its bytes, on its sender and on its receiver. A
  // value of unknown shape counts as a message of no bytes.
  double message_ns = 5000;
  double message_bytes_per_ns = 5;
};

// The part of one process.
struct PipelineStage {
  int nodes = 0;
  double ns = 0;           // of the nodes
  double messages_ns = 0;  // of the values that it receives and sends
  int64_t bytes_received = 0, bytes_sent = 0;

  double total_ns() const { return ns + messages_ns; }
};

struct PipelineCut {
  Graph graph;                        // with the process of each node
  std::vector<PipelineStage> stages;  // by process
  // Sentences for the user: which processes get no nodes.
  std::vector<std::string> warnings;
};

// Returns the graph with a process for each node (OperatorDef::Process). Each process has nodes
// that follow each other in the order of a run. Of all such cuts, this one has the shortest slowest
// stage, its messages included. Processes that would not make it shorter get no nodes, and
// PipelineCut::warnings names them. A node that depends on no input of the graph gets no process,
// so that each process that reads its outputs computes them. Nodes that rewrite a value, the
// readers of this value, and nodes that wait for each other by control inputs, stay on one process,
// as do the nodes between them. To train a pipeline, first cut the forward graph and then add the
// gradients: each is made on the process of its weight.
//
//   const PipelineCut cut = Pipeline(graph, communicator->processes());
//   PlanOptions options;
//   options.cluster.communicator = communicator;
//   Executor exec(Compile(cut.graph, options));
//
// Takes O(nodes * nodes * processes). Throws kInvalidArgument for less than one process, for a rate
// or time that is not positive, and for a graph that communicates or names processes already; and
// the errors of InferGraph.
PipelineCut Pipeline(const Graph& graph, int processes, const PipelineOptions& options = {});

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/cluster/impl/pipeline.ipp"
#endif

#endif  // OPKIT_CLUSTER_PIPELINE_HPP_
