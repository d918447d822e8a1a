// BoundPlan: a specialization with operators and tensors of its own, which a Replay runs step by
// step. An executor keeps one for each set of input shapes; they share its arenas.
#ifndef OPKIT_GRAPH_PLAN_BOUND_PLAN_HPP_
#define OPKIT_GRAPH_PLAN_BOUND_PLAN_HPP_

#include <map>

#include "opkit/base/indexed_vector.hpp"
#include "opkit/device/deferred_failure.hpp"
#include "opkit/engine/schedule/replay.hpp"
#include "opkit/graph/passes/pass_rules.hpp"
#include "opkit/graph/plan/process_link.hpp"
#include "opkit/graph/plan/recorded_runs.hpp"
#include "opkit/graph/plan/shared_arenas.hpp"
#include "opkit/graph/plan/specialization.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The plan of an executor for one set of input shapes. Its runs do not overlap; Cancel is
// thread-safe.
class BoundPlan final : public RefCounted, public BodyRunner {
 public:
  // With `records`, runs repeat recordings of the steps on a device that can record.
  BoundPlan(IntrusivePtr<Specialization> specialization, std::unique_ptr<BoundNodes> nodes,
            ThreadPool& pool, ReplayOptions options, bool records = false);
  // Makes the plan of a body (the graph that a node carries) inside the plan `root`. The operator
  // of that node runs it.
  BoundPlan(IntrusivePtr<Specialization> specialization, BoundNodes& nodes, BoundPlan* root)
      : root_(root),
        view_(specialization->view()),
        specialization_(std::move(specialization)),
        nodes_(&nodes) {
    MakeSteps();
    MakeBodies();
  }
  ~BoundPlan() override {
    if (recorded_) recorded_->runs.FinishDropped();
  }

  // Puts all planned values and scratch into the executor's arenas. Call it before a run. Throws
  // the errors of AllocateStorage; the plan then has no arenas.
  void UseArenas(SharedArenas& arenas);
  bool NeedsLargerArenas(const SharedArenas& arenas) const;
  // Releases the arenas until the next UseArenas.
  void ReleaseArenas();

  // Points the values that are planned in a donated input to the memory of `tensor`. `plan_input`
  // is the input's number in the plan's view. An uninitialized tensor releases the previous one.
  void SetDonated(int plan_input, const Tensor& tensor);
  // Takes the output out of the donated input's memory, because the caller wants it elsewhere.
  void DetachFromDonated(int plan_output) {
    LeaveDonated(specialization_->memory().NumberOf(specialization_->ValueOf(plan_output)));
  }
  const Specialization& specialization() const { return *specialization_; }
  BoundNodes& nodes() const { return *nodes_; }
  const IntrusivePtr<Specialization>& shared_specialization() const { return specialization_; }
  const std::vector<TensorInfo>& inputs() const { return specialization_->inputs(); }
  // Returns the blob of a value, by its number in the plan's view.
  Blob& blob(int plan_value) const { return nodes_->blob(specialization_->ValueOf(plan_value)); }
  // Returns the operator that computes a node of the plan's graph.
  OperatorBase& op(int plan_node) const { return nodes_->op(specialization_->NodeOf(plan_node)); }
  // Call it when the caller can attach observers to operators: each run then looks for observers
  // before it repeats a recording, which calls no operator.
  void MayBeObserved() { may_be_observed_ = true; }

  void Run(Timeout timeout);
  // Runs a body on this thread, during a run of the enclosing graph.
  void RunBody() override;
  Tensor& BodyInput(size_t i) override {  // inputs are the first values
    return *blob(static_cast<int>(i)).GetMutable<Tensor>();
  }
  Tensor& BodyOutput(size_t o) override {
    return *blob(specialization_->plan_view().outputs()[o]).GetMutable<Tensor>();
  }
  // Starts a run. The thread that ends the run calls `done` once; `done` must call Clean after a
  // failure and Succeeded after a success.
  void RunAsync(UniqueFunction<void(std::exception_ptr)> done) {
    Begin();
    running().RunAsync(std::move(done));
  }
  // Completes the steps with Step::implied after a successful run. No event reports their ends,
  // which follow from the ends of other steps. Then throws the first failure that an operator has
  // deferred (DefersFailures), if any; a call of Clean is not needed.
  void Succeeded();
  // Cancels the run; any thread may call it. Steps that have not begun are skipped, asynchronous
  // steps in flight fail.
  void Cancel();
  // Cleans up after a failed run. A device may still write to the memory of abandoned steps: these
  // keep the old arenas, and the next run gets new ones. The failures that their operators have
  // deferred, or will defer, are discarded.
  void Clean();

  std::string ExplainMode() const;

 private:
  // Runs steps on one thread, each under its own invocation. The ids of a run are consecutive: the
  // id of a step follows from its number, and no step stores an id.
  class StepRunner {
   public:
    explicit StepRunner(BoundPlan& plan, bool recorded = false)
        : plan_(plan),
          recorded_(recorded),
          outer_(CurrentInvocation()),
          current_(t_invocation.current) {
      current_.parent = outer_.id;
    }
    StepRunner(StepRunner&&) = delete;
    ~StepRunner() { current_ = outer_; }
    NodeState operator()(int i) const {
      if (recorded_) [[unlikely]]
        if ((i = plan_.recorded_->part.StepOf(i)) == RecordedPart::kRecorded) return RunRecorded();
      const Step& step = plan_.steps_[Index(i)];
      __builtin_prefetch(step.ahead);
      try {
        current_.id = plan_.first_id_ + static_cast<uint64_t>(i);
        current_.kind = step.kind;
        if (!step.direct || CurrentSpanSink()) [[unlikely]] {
          current_ = outer_;
          return plan_.RunScoped(i, step);
        }
        step.op->RunDirectly();
        if (step.op->HasTakenOutputs()) plan_.CheckPlaces(step);
        return NodeState::kDone;
      } catch (...) {
        if (plan_.specialization_->may_pend()) plan_.FailPending(std::current_exception());
        throw;
      }
    }

   private:
    OPKIT_NOINLINE NodeState RunRecorded() const {
      current_ = outer_;
      return plan_.LaunchRecorded();
    }

    BoundPlan& plan_;
    const bool recorded_;
    const Invocation outer_;
    Invocation& current_;
  };
  // The interface through which Replay runs the steps, or the nodes of a RecordedPart.
  struct Body {
    BoundPlan* self;
    bool recorded;
    StepRunner OnThread() const { return StepRunner(*self, recorded); }
    bool Poll() const { return self->PollPending(); }
  };
  // The place where an operator must leave a value: its planned memory or, if `storage` is null,
  // any memory outside the arenas.
  struct Place {
    Blob* blob;
    const StorageBlock* storage;
    int64_t offset;
    int inferred;  // index in inferred_; -1: type unknown, or inferred by the operator
    int value;
    bool apart;  // must share no input's memory: a node rewrites the value, or an input of its node
    LayoutId layout;
  };
  // A node in the order of the run. Its ranges select the node's items of places_ and waits_.
  struct Step {
    OperatorBase* op;
    const OperatorBase* ahead;  // an operator some steps later, to prefetch; null: none
    int first_place, end_place;
    int first_wait, end_wait;
    int stream;
    Invocation::Kind kind;
    bool direct, asynchronous;
    bool implied = false;  // no event reports its end: later device steps wait for it
  };
  // The steps that are recorded, and what runs need that launch a recording.
  struct Recorded {
    Recorded(RecordedPart found, const Specialization& plan, const BoundNodes& nodes)
        : part(std::move(found)), runs(part, plan, nodes), event(part.device) {}

    const RecordedPart part;
    RecordedRuns runs;
    Event event;  // of the latest launch
    IntrusivePtr<const FailureContext> context;
    std::optional<Replay<Body>> replay;
  };

  void Begin() {
    ++runs_;
    DropSharedValues();
    cancelled_ = false;
    polled_until_ns_ = -1;
    first_id_ = NextInvocationIds(ids_of_run_);
    // Relaxed: Cancel may come at any time, and another thread may cancel a run only after its
    // begin.
    running_.store(recorded_ && ChoosesRecording() ? &*recorded_->replay : &*replay_,
                   std::memory_order_relaxed);
  }
  Replay<Body>& running() const { return *running_.load(std::memory_order_relaxed); }
  bool is_recorded_run() const { return recorded_ && &running() == &*recorded_->replay; }
  // Finds the steps that can be recorded and prepares runs of them.
  OPKIT_COLD void FindRecorded(ThreadPool& pool, ReplayOptions options);
  // Decides whether this run launches a recording, and makes it if there is none.
  bool ChoosesRecording();
  // True if an observer or a profile watches the operators of this run.
  bool IsWatched() const;
  // Issues the recorded steps, for a recording.
  OPKIT_COLD void IssueRecorded(WorkRecorder& recorder);
  NodeState LaunchRecorded();
  void OnRecordedCompleted();
  // Throws the first failure that an operator has deferred, and drops the others.
  void ThrowDeferred();
  // The place in in_flight_ of the event of a recording.
  int recorded_slot() const { return static_cast<int>(steps_.size()); }
  // Looks at the tensors that the last run left in values without planned memory, and drops those
  // whose memory another tensor shares. An operator of this run would otherwise write its output
  // into that memory, and so change an input or another value. The loop goes backwards: views come
  // after the value that they view, and are dropped first. No other tensor then shares the value's
  // memory, and the value keeps it.
  void DropSharedValues() {
    for (auto blob = unplanned_.rbegin(); blob != unplanned_.rend(); ++blob)
      if ((*blob)->IsType<Tensor>())
        if (Tensor& last = *(*blob)->GetMutable<Tensor>(); last.storage().use_count() > 1)
          last = Tensor(last.device());
  }
  // Records the mode of the replay, which changes with the measured times of its runs.
  OPKIT_COLD void ReportMode() {
    decisions_ = replay_->decisions();
    specialization_->SetMode(ExplainMode());
  }

  // Runs an operator that opens its own invocation.
  NodeState RunScoped(int i, const Step& step);
  // Fails the run and cancels its asynchronous steps, which might never finish otherwise.
  OPKIT_COLD void FailPending(std::exception_ptr failure) {
    running().Fail(std::move(failure));
    CancelPending();
  }
  void IssueTo(const Step& step);
  NodeState Issue(int i, const Step& step);
  void OnStepCompleted(int i);
  // True if the step makes its outputs only when its work has ended.
  bool MakesOutputsLate(int i) const { return !receiving_.empty() && receiving_[i]; }
  OPKIT_COLD void TakeOutputs(int i);
  // Polls the events of the steps in flight; the thread that waits for the run calls it. Returns
  // false if there is nothing to poll, or kPolledNs after the first poll of the run.
  bool PollPending();
  // Stores a second handle of a step's event, for Cancel, which may come at any time. The
  // operator's own handle must not be read while the operator is issued again.
  void SetInFlight(int i, std::optional<Event> event) {
    MutexLock lock(in_flight_mutex_);
    in_flight_[i] = std::move(event);
  }
  void CancelPending();

  // Checks the outputs of a step. Fast path: every output is already in its planned place.
  void CheckPlaces(const Step& step) {
    const Place* const end = places_.data() + step.end_place;
    for (const Place* place = places_.data() + step.first_place; place != end; ++place) {
      if (place->inferred >= 0) CheckInferred(step, *place);
      if (!IsInPlace(*place)) [[unlikely]]
        MoveOut(step, *place);
    }
  }
  void CheckInferred(const Step& step, const Place& place) const {
    if (!place.blob->IsType<Tensor>()) return;
    const Tensor& made = place.blob->Get<Tensor>();
    const InferenceCache::Output& inferred = inferred_[place.inferred];
    const bool allowed = inferred.Allows(made) && (inferred.known || IsWithinBound(place, made));
    if (!allowed && made.initialized()) [[unlikely]]
      ThrowContradicts(step.op->def(), place.blob->name(), made,
                       inferred.known ? inferred.info() : specialization_->types()[place.value]);
  }
  bool IsWithinBound(const Place& place, const Tensor& made) const {
    return specialization_->types()[place.value].shape.Allows(made.shape());
  }
  bool IsInPlace(const Place& place) const {
    const Blob& blob = *place.blob;
    if (!blob.IsType<Tensor>()) [[unlikely]]
      return false;
    const Tensor& tensor = blob.Get<Tensor>();
    if (tensor.layout().id != place.layout) [[unlikely]]
      return false;
    const StorageBlock* found = tensor.storage().get();
    if (place.storage) return found == place.storage && tensor.byte_offset() == place.offset;
    return found != only_arena_ && !several_arenas_ && !place.apart;
  }
  // Moves an output that the operator left elsewhere: a view of an input, or a value that the
  // operator could not write to its place. The value goes to its place if it fits there. It then
  // outlives the input, and the next run writes only to the plan's memory.
  void MoveOut(const Step& step, const Place& place);
  // Returns the tensor to which MoveOut moved the value in the last run. Only the value's own step
  // calls it.
  Tensor& LastMoved(const Place& place) {
    MutexLock lock(moved_mutex_);
    return moved_[place.value];
  }
  // Returns the number of bytes that are planned for the value; 0 if the value has no place. The
  // root plan has the bytes of a body's values.
  int64_t RoomOf(const Place& place) const;
  bool SharesInput(const Step& step, const Place& place) const;
  // Returns the arena, or the donated input's memory, that has this block; null if there is none.
  Storage ArenaOf(const StorageBlock* storage) const;

  void MakeSteps();
  // True if the end of the step follows from the ends of other steps: a step waits for it on its
  // device, and no step waits for it on the host.
  bool FollowsFromOthers(int i) const;
  void MakeBodies();
  // Chooses the operators to prefetch. The operators of a large graph lie scattered in memory, but
  // the order of the steps, bodies included, is known.
  void LookAhead();
  // Gives the steps of a run, bodies included, consecutive numbers from `next` on. Returns the next
  // free number.
  uint64_t NumberIds(uint64_t next);
  void AppendSteps(std::vector<Step*>& order);
  int AddInferred(int value);
  // Collects the operators that each asynchronous step waits for on the device: the sources of the
  // early edges to it.
  void MakeWaits();
  void PutIntoDonated(const ArenaPlan& arena, const ArenaPlan::Donated& donated,
                      const Tensor& input);
  void LeaveDonated(size_t value);
  // Makes the value's blob a tensor in `storage`, at the place's offset.
  void SetTensor(const Place& place, const Storage& storage, int64_t bytes);
  bool HasLargeEnough(SharedArenas& arenas) const;
  Storage TakeArena(const ArenaPlan& arena, SharedArenas& arenas) const {
    return InContext([&] { return arenas.Take(arena.device, arena.plan.arena_bytes); },
                     [&] { return specialization_->memory().LargestIn(arena); });
  }
  // Puts the values of this plan and of its bodies into arenas.
  void PutInto(const std::vector<ArenaPlan>& planned, const std::vector<Storage>& arenas);
  static bool HasDonated(const std::vector<ArenaPlan>& arenas) {
    return std::ranges::any_of(arenas,
                               [](const ArenaPlan& arena) { return !arena.donated.empty(); });
  }
  void FillArena(const ArenaPlan& arena, const Storage& storage);

  // Members that a run of a body reads come first, in one cache line.
  IndexedVector<Step> steps_;
  BoundPlan* const root_;    // the plan of the outermost graph; `this` unless this is a body
  uint64_t first_id_ = 0;    // invocation id of the first step in this run
  uint64_t ids_before_ = 0;  // steps of the whole run that are numbered before these
  const GraphView& view_;
  IntrusivePtr<Specialization> specialization_;
  std::unique_ptr<BoundNodes> own_nodes_;  // null for a body: the root owns its nodes
  BoundNodes* const nodes_;
  IndexedVector<IntrusivePtr<BoundPlan>> bodies_;
  IndexedVector<InferenceCache::Output> inferred_;  // by Place::inferred
  std::vector<Place> places_;                       // the outputs of each step, step by step
  IndexedVector<OperatorBase*> waits_;  // the operators that each step waits for, step by step
  SharedArenas* shared_arenas_ = nullptr;
  std::vector<Storage> arenas_;  // from shared_arenas_; empty between ReleaseArenas and UseArenas
  std::vector<std::pair<int, Storage>> donated_;  // donated inputs, by value, and their memory
  const StorageBlock* only_arena_ = nullptr;
  bool several_arenas_ = false;
  int decisions_ = 0;
  uint64_t ids_of_run_ = 0;
  std::atomic<bool> cancelled_{false};
  std::atomic<int> runs_{0};
  // Blobs of values that have no planned memory and that runs do not return.
  std::vector<Blob*> unplanned_;
  Mutex moved_mutex_;
  std::map<int, Tensor> moved_;  // values that MoveOut gave memory of their own
  Mutex in_flight_mutex_;
  IndexedVector<std::optional<Event>>
      in_flight_;                           // by step; empty unless the step may be unfinished
  std::vector<DefersFailures*> deferring_;  // the operators that defer failures, step by step
  // For each step its operator if that ReceivesOutputs, else null; empty if no operator does.
  IndexedVector<ReceivesOutputs*> receiving_;
  std::vector<int> implied_, polled_;  // steps on devices, with and without Step::implied
  int64_t polled_until_ns_ = -1;       // negative: this run was not polled yet
  bool may_be_observed_ = false;
  std::unique_ptr<Recorded> recorded_;  // null if nothing can be recorded
  std::string why_not_recorded_;
  std::optional<Replay<Body>> replay_;           // empty for a body, which its operator runs
  std::atomic<Replay<Body>*> running_{nullptr};  // that of this or the latest run
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/plan/impl/bound_plan.ipp"
#endif

#endif  // OPKIT_GRAPH_PLAN_BOUND_PLAN_HPP_
