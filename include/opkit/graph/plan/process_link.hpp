// ProcessLink: how a plan of several processes reaches the folder cluster/: the communicator that
// it holds, the hook by which Compile takes the nodes of its process, and the operators whose
// outputs come from other processes.
#ifndef OPKIT_GRAPH_PLAN_PROCESS_LINK_HPP_
#define OPKIT_GRAPH_PLAN_PROCESS_LINK_HPP_

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

  // Begins and ends a run of the plan; executors call them. `waits`: the calling thread waits for
  // the end. BeginRun throws kFailedPrecondition if another executor of the plan is running, and
  // kCancelled if a run of the plan has failed; EndRun is not called then.
  virtual void BeginRun(bool waits) = 0;
  virtual void EndRun() noexcept = 0;
  // Adds the number of the run that has begun to the profile that is recorded, as a fact of the
  // run's invocation; executors call it.
  virtual void RecordRun(uint64_t invocation) const noexcept = 0;
  // Ends the run on the other processes too, because it failed here; executors call it. Returns the
  // Error for the caller of this run: it names the process that failed first, and the cause.
  virtual std::exception_ptr RunFailed(const std::exception_ptr& error) noexcept = 0;

  // An input or output of the whole graph that the part of this process lacks, and a sentence that
  // says so and names the processes that have it.
  struct MissingName {
    std::string name, sentence;
  };
  // Compile calls it before the plan is used.
  void SetMissing(std::vector<MissingName> missing) { missing_ = std::move(missing); }
  // Returns null if the whole graph has no such input or output, or if this process has it too.
  const std::string* FindMissing(std::string_view name) const {
    for (const MissingName& one : missing_)
      if (one.name == name) return &one.sentence;
    return nullptr;
  }

 private:
  std::vector<MissingName> missing_;
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
