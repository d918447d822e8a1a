// ProcessLink: how a plan of several processes reaches the folder cluster/: the communicator that
// it holds, the hook by which Compile takes the nodes of its process, and the operators whose
// outputs come from other processes.
#ifndef OPKIT_GRAPH_PLAN_PROCESS_LINK_HPP_
#define OPKIT_GRAPH_PLAN_PROCESS_LINK_HPP_

#include <exception>

#include "opkit/base/hook.hpp"
#include "opkit/base/ref_counted.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class Graph;
struct PlanOptions;

namespace detail {

// The communicator of a process as plans see it (Communicator of opkit/cluster/communicator.hpp).
class ProcessLink : public RefCounted {
 public:
  // Returns the number of this process, from 0, and the number of all processes.
  virtual int process() const = 0;
  virtual int processes() const = 0;
  // Executors call these functions: at the begin of a run of the plan, at its end, and if it failed
  // here, to end it on the other processes too. `waits`: the calling thread waits for the end.
  // BeginRun throws kFailedPrecondition if another executor of the plan is running; EndRun is not
  // called then.
  virtual void BeginRun(bool waits) = 0;
  virtual void EndRun() noexcept = 0;
  virtual void RunFailed(const std::exception_ptr& error) noexcept = 0;
};

// An operator whose work goes on after RunOnDevice, and which learns the dtype and the shape of an
// output only from that work. RunOnDevice leaves the output without a tensor.
class ReceivesOutputs {
 public:
  // Makes the outputs of a run whose work has ended with success. The plan calls it when no other
  // thread uses the operator, and then checks the outputs.
  virtual void TakeOutputs() = 0;

 protected:
  ~ReceivesOutputs() = default;
};

// Returns the nodes of one process, and puts the plan's own communicator into
// PlanOptions::cluster.
OPKIT_IMAGE_LOCAL inline constinit Hook<Graph(const Graph&, PlanOptions&)> g_process_part{
    "a plan of several processes", "opkit/cluster/process_parts.hpp"};

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_GRAPH_PLAN_PROCESS_LINK_HPP_
