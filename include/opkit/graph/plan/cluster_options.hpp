// ClusterOptions: the options of a plan that runs on several processes. Compile keeps the nodes of
// its own process, and nodes that send and receive the values that cross
// (opkit/cluster/process_parts.hpp).
#ifndef OPKIT_GRAPH_PLAN_CLUSTER_OPTIONS_HPP_
#define OPKIT_GRAPH_PLAN_CLUSTER_OPTIONS_HPP_

#include <exception>

#include "opkit/base/hook.hpp"
#include "opkit/base/ref_counted.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class Graph;

namespace detail {

// What a plan needs of its communicator; opkit/cluster/communicator.hpp defines communicators.
class ProcessLink : public RefCounted {
 public:
  // Returns the number of this process, from 0, and the number of all processes.
  virtual int process() const = 0;
  virtual int processes() const = 0;
  // Tells the other processes that a run of the plan failed here. Executors call it.
  virtual void RunFailed(const std::exception_ptr& error) noexcept = 0;
};

}  // namespace detail

struct ClusterOptions {
  // The process whose part of the graph Compile keeps, from 0, and the number of processes; -1 and
  // 0: those of the communicator, or one process. Both may be given without a communicator, to look
  // at the part of a process. Such a plan does not run: a node that communicates throws
  // kFailedPrecondition.
  int process = -1;
  int processes = 0;
  // The communicator of this process (a Communicator of opkit/cluster/communicator.hpp). All
  // processes must compile the same graphs in the same order: Compile of each process waits for the
  // others, compares the graphs, and throws kInvalidArgument with the first difference. Each plan
  // gets a communicator of its own.
  detail::IntrusivePtr<detail::ProcessLink> communicator = {};
};

namespace detail {

// Returns the number of processes that the options ask for; 1 without options.
inline int ProcessesOf(const ClusterOptions& options) {
  if (options.processes > 0) return options.processes;
  return options.communicator ? options.communicator->processes() : 1;
}

// Returns the nodes of one process, and puts the plan's own communicator into the options.
OPKIT_IMAGE_LOCAL inline constinit Hook<Graph(const Graph&, ClusterOptions&)> g_process_part{
    "a plan of several processes", "opkit/cluster/process_parts.hpp"};

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_GRAPH_PLAN_CLUSTER_OPTIONS_HPP_
