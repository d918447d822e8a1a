// RecordedPart: the steps of a plan that one device can record and repeat, such as by a CUDA graph.
// RecordedRuns: the recordings of these steps for one bound plan. A run launches a recording
// instead of calling the operators, which costs the host one launch for all steps.
//
// A recording repeats its work with the addresses that the operators had when they were recorded:
// the arguments of a kernel cannot be changed later, because only its operator knows what they
// mean. Values in the plan's arenas always have the same addresses. The caller's inputs, and the
// outputs that a run returns, may have others in each run. These are the addresses of a run below.
// A run follows the first of these rules that applies:
//
// 1. The first run calls the operators, because they allocate their memory, and libraries load
//    their kernels, in their first run.
// 2. If there is a recording with the addresses of this run, the run launches it. It reads the
//    caller's inputs and writes the outputs in place.
// 3. If this run has the same addresses as the run before, and the plan has less than
//    kMostRecordings recordings, the run makes the recording of rule 2 and launches it.
// 4. If at least two runs had other addresses than the run before them, the run launches a
//    recording that reads and writes buffers with fixed addresses. The device copies the inputs
//    into the buffers before, and the outputs out of them afterwards.
// 5. Otherwise the run calls the operators.
//
// A plan has no buffers if they would have more than kMostCopiedBytes. Rule 4 does not apply to it,
// and by rule 3 a new recording replaces the oldest one. After a Drop the next run counts as the
// first one.
#ifndef OPKIT_GRAPH_PLAN_RECORDED_RUNS_HPP_
#define OPKIT_GRAPH_PLAN_RECORDED_RUNS_HPP_

#include <optional>
#include <string>
#include <vector>

#include "opkit/device/recorded_work.hpp"
#include "opkit/graph/plan/specialization.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The steps of a specialization that are recorded together. All other steps run on the host, before
// or after them. If `record` is null, nothing is recorded, and why_not says why. It is empty for a
// plan without steps on a device that can record.
struct RecordedPart {
  // A value whose address may be another one in each run: an input of the graph that recorded steps
  // read, or an output of the graph that they make. Outputs are allocated before the launch.
  struct Outer {
    int value;
    bool is_output;
  };
  // Step `to` runs after step `from`, which is on another stream.
  struct Wait {
    int to, from;
  };
  static constexpr int kRecorded = -1;

  // Finds the steps of the plan. `nodes` has the operators of one of its executors.
  static RecordedPart Of(const Specialization& plan, const BoundNodes& nodes);

  RecordFunction record = nullptr;
  std::string why_not;
  Device device;
  std::vector<int> steps;  // in the order of the run
  int streams = 1;
  std::vector<Wait> waits;  // ordered by `to`
  std::vector<Outer> outer;
  // Values that recorded steps make and steps on the host read.
  std::vector<int> handed_over;
  // The schedule of a run that launches a recording. It has a node for each step on the host, and
  // one node for all recorded steps. The schedule numbers its nodes anew: node_steps has the step,
  // or kRecorded, by the number that a node had before.
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

  // Chooses the recording that the next run launches, and makes it if necessary. Returns false if
  // the run has to call the operators. Call it when the inputs of this run are in their values.
  bool Choose(Issue issue);
  // Launches the chosen recording, and records `event`, which must be INITIALIZED, behind it. The
  // event keeps the memory that the work uses, which includes `arenas`. Throws the errors of
  // RecordedWork::Launch.
  void Launch(Event& event, const std::vector<Storage>& arenas);
  // Call it after a successful run that has called the operators: their memory exists from now on.
  void OperatorsRan();
  // Call it after a successful run that has launched a recording: the device has finished it.
  void LaunchEnded() { launched_ = {}; }
  // Forgets the recordings, because arenas have changed or a run has failed. The device may still
  // work for the latest launch.
  void Drop();
  // Waits until the device has finished a launch that was under way at the latest Drop.
  void FinishDropped() noexcept;
  // Returns the reason why recording has failed; empty if it has not failed.
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
  int changes_ = 0;  // runs whose addresses were others than those of the run before
  Addresses last_;   // of the latest run
  std::vector<Recording> in_place_;
  std::vector<Tensor> buffers_;  // for the outer values of the part, in their order
  Recording with_copies_;        // the recording of rule 4; its `addresses` are empty
  const Recording* chosen_ = nullptr;
  IntrusivePtr<RecordedWork> launched_;  // in the run under way
  IntrusivePtr<RecordedWork> dropped_;   // launched_ at the latest Drop, until FinishDropped
  std::vector<RecordedWork::Move> before_, after_;
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/plan/impl/recorded_runs.ipp"
#endif

#endif  // OPKIT_GRAPH_PLAN_RECORDED_RUNS_HPP_
