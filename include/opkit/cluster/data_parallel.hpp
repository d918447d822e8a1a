// DataParallel: training on several processes, each with a part of the batch. Adds the backward
// graph of a loss, and AllReduce nodes that combine the gradients of all processes.
#ifndef OPKIT_CLUSTER_DATA_PARALLEL_HPP_
#define OPKIT_CLUSTER_DATA_PARALLEL_HPP_

#include "opkit/graph/gradient/gradients.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct DataParallelOptions {
  // The bytes of gradients that an AllReduce combines at least, if the graph has so many. A small
  // bucket begins its communication earlier, a large one sends fewer messages.
  int64_t bucket_bytes = int64_t{4} << 20;
  // The gradients of the processes are averaged; false: added up.
  bool is_mean = true;
  // Adds up the gradients in the order of the processes, so that the result does not depend on the
  // communicator. Sends more bytes: each process gets the gradients of all others.
  bool deterministic = false;
  GradientOptions gradients = {};  // for AddGradients
};

// Adds the gradients of `loss` with respect to the values `wrt`, as AddGradients does, and the
// nodes that combine them. Returns the names of the combined gradients, which are equal on all
// processes. A bucket has gradients in the order in which the backward graph makes them, and its
// AllReduce begins as soon as it has all of them, while the backward graph goes on.
//
//   GradientMap d = DataParallel(graph, "loss", {"W", "b"});
//   graph.AddOutput(d.at("W").dense);
//
// An error leaves the graph unchanged. Throws the errors of AddGradients and of AllReduceGradients.
GradientMap DataParallel(Graph& graph, const std::string& loss, const std::vector<std::string>& wrt,
                         const DataParallelOptions& options = {});

// Adds the nodes that combine gradients which the graph has already. Ignores options.gradients. An
// error leaves the graph unchanged. Throws kInvalidArgument for a bucket_bytes below 1 and for a
// gradient that one process makes (OperatorDef::Process), kNotFound for one that the graph does not
// have, and kUnsupported for a sparse gradient.
GradientMap AllReduceGradients(Graph& graph, const GradientMap& gradients,
                               const DataParallelOptions& options = {});

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/cluster/impl/data_parallel.ipp"
#endif

#endif  // OPKIT_CLUSTER_DATA_PARALLEL_HPP_
