// RecordedPart: the steps of a plan that one device can record and repeat, such as by a CUDA graph.
// RecordedRuns: the recordings of these steps for one bound plan. A run launches a recording
// instead of calling the operators, which costs the host one launch for all steps.
//
// A recording repeats its work with the addresses that the operators were given. Values in the
// plan's arenas have fixed addresses; the caller's inputs and the outputs that runs return have
// not. The arguments of kernels cannot be changed in a recording, because only the operator that
// launched them knows their layout. So:
//
// - The first run calls the operators. They make their own memory, and libraries load kernels.
// - A run with the addresses of the run before is recorded, if no recording has these addresses.
//   The caller's tensors are then read and written in place. Up to kMostRecordings are kept.
// - From the second run on that has other addresses than the run before, runs whose addresses have
//   no recording copy the inputs into fixed buffers and the outputs out of them, on the device, and
//   launch a recording with these buffers. If the buffers would have more than kMostCopiedBytes,
//   such a run calls the operators.
#ifndef OPKIT_GRAPH_PLAN_RECORDED_RUNS_HPP_
#define OPKIT_GRAPH_PLAN_RECORDED_RUNS_HPP_

#include <optional>
#include <string>
#include <vector>

#include "opkit/device/recorded_work.hpp"
#include "opkit/graph/plan/specialization.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The steps of a specialization that are recorded together. The other steps run on the host, before
// or after them. Nothing is recorded if `record` is null; why_not says why, and is empty for a plan
// without steps on a device that can record.
struct RecordedPart {
  // A value whose memory may change from run to run: an input of the graph that recorded steps
  // read, or an output that they make. The memory of an output is allocated before the launch.
  struct Outer {
    int value;
    bool is_output;
  };
  // A step that runs after a step on another stream.
  struct Wait {
    int to, from;
  };
  static constexpr int kRecorded = -1;

  // Finds the steps. `nodes` are the operators of the specialization, in any executor.
  static RecordedPart Of(const Specialization& plan, const BoundNodes& nodes);

  RecordFunction record = nullptr;
  std::string why_not;
  Device device;
  std::vector<int> steps;  // in the order of the run
  int streams = 1;
  std::vector<Wait> waits;  // ordered by `to`
  std::vector<Outer> outer;
  // Values that steps on the host read from recorded steps.
  std::vector<int> handed_over;
  // The host's steps and one node for all recorded steps. node_steps has the step of each node
  // before it was renumbered by the schedule, or kRecorded.
  std::optional<Schedule> schedule;
  std::vector<int> node_steps;

  // Returns the step of a node of the schedule, or kRecorded.
  int StepOf(int node) const { return node_steps[Index(schedule->original_of(node))]; }
  // Returns the node that stands for the recorded steps.
  int NodeOfRecorded() const {
    for (int node = 0;; ++node)
      if (StepOf(node) == kRecorded) return node;
  }
};

// Not synchronised: a run chooses, launches and ends before the next one begins.
class RecordedRuns {
 public:
  static constexpr size_t kMostRecordings = 4;
  static constexpr int64_t kMostCopiedBytes = int64_t{64} << 20;
  // Issues the recorded steps by OperatorBase::RunRecorded.
  using Issue = FunctionRef<void(WorkRecorder&)>;

  // Both must outlive this object.
  RecordedRuns(const RecordedPart& part, const Specialization& plan, const BoundNodes& nodes);

  // Chooses the recording that the next run launches, and records it if there is none yet. Returns
  // false if the run has to call the operators. Call it when the values have the memory of the run.
  bool Choose(Issue issue);
  // Launches the chosen recording. `event` must be INITIALIZED; it keeps the memory that the work
  // uses, that of `arenas` included. Throws the errors of RecordedWork::Launch.
  void Launch(Event& event, const std::vector<Storage>& arenas);
  // Call it after a successful run that has called the operators: their memory exists from now on.
  void OperatorsRan();
  // Forgets the recordings, because arenas have changed. Work of the latest launch may go on.
  void Drop();
  // Waits until the device has finished the latest launch, if a Drop has left it under way.
  void FinishDropped() noexcept;
  // Returns why recording has failed; empty if it has not.
  const std::string& why_not() const { return failure_; }
  // Says which steps are recorded, or why none is.
  std::string Explain() const;

 private:
  using Outer = RecordedPart::Outer;
  using Addresses = std::vector<const void*>;  // of the outer values
  struct Recording {
    Addresses addresses;
    IntrusivePtr<RecordedWork> work;
  };

  Tensor* TensorOf(int value) const;
  Addresses AddressesNow() const;
  void AllocateOutputs() const;
  IntrusivePtr<RecordedWork> Record(Issue issue) const;
  const Recording* RecordInPlace(Issue issue);
  const Recording* RecordWithCopies(Issue issue);
  // Exchanges the tensors of the outer values and the buffers.
  void SwapBuffers();

  const RecordedPart& part_;
  const Specialization& plan_;
  const BoundNodes& nodes_;
  std::string failure_;
  bool may_copy_ = false;
  bool operators_ran_ = false;
  int changes_ = 0;  // runs whose addresses differed from those of the run before
  Addresses last_;
  std::vector<Recording> in_place_;
  std::vector<Tensor> buffers_;  // by outer value; of the recording with copies
  Recording with_copies_;        // without addresses
  const Recording* chosen_ = nullptr;
  IntrusivePtr<RecordedWork> launched_, dropped_;
  std::vector<RecordedWork::Move> before_, after_;
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/plan/impl/recorded_runs.ipp"
#endif

#endif  // OPKIT_GRAPH_PLAN_RECORDED_RUNS_HPP_
