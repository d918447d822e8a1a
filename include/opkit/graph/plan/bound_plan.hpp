// BoundPlan: a specialization with operators and tensors of its own, which a Replay runs step by
// step. An executor keeps one for each set of input shapes; they share its arenas.
#ifndef OPKIT_GRAPH_PLAN_BOUND_PLAN_HPP_
#define OPKIT_GRAPH_PLAN_BOUND_PLAN_HPP_

#include <map>

#include "opkit/engine/schedule/replay.hpp"
#include "opkit/graph/memory/flat_lists.hpp"
#include "opkit/graph/passes/pass_rules.hpp"
#include "opkit/graph/plan/shared_arenas.hpp"
#include "opkit/graph/plan/specialization.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

class BoundPlan final : public RefCounted, public BodyRunner {
 public:
  BoundPlan(IntrusivePtr<Specialization> specialization, std::unique_ptr<BoundNodes> nodes,
            ThreadPool& pool, ReplayOptions options)
      : BoundPlan(std::move(specialization), *nodes, this) {
    own_nodes_ = std::move(nodes);
    LookAhead();
    ids_of_run_ = NumberIds(0);
    replay_.emplace(specialization_->schedule(), Body{this}, options, pool);
    ReportMode();
  }
  // Makes the plan of a body inside `root`. The operator of the body's node runs it.
  BoundPlan(IntrusivePtr<Specialization> specialization, BoundNodes& nodes, BoundPlan* root)
      : root_(root),
        view_(specialization->view()),
        specialization_(std::move(specialization)),
        nodes_(&nodes) {
    MakeSteps();
    MakeBodies();
  }

  // Puts all planned values and scratch into the executor's arenas. Call it before a run. Throws
  // the errors of AllocateStorage; the plan then has no arenas.
  void UseArenas(SharedArenas& arenas) {
    shared_arenas_ = &arenas;
    const std::vector<ArenaPlan>& planned = specialization_->memory().arenas();
    if (arenas_.size() == planned.size() && HasLargeEnough(arenas)) return;
    ReleaseArenas();
    std::vector<Storage> taken;
    for (const ArenaPlan& arena : planned) taken.push_back(TakeArena(arena, arenas));
    PutInto(planned, taken);
  }
  bool NeedsLargerArenas(const SharedArenas& arenas) const {
    for (const ArenaPlan& arena : specialization_->memory().arenas())
      if (arenas.MustGrow(arena.device, arena.plan.arena_bytes)) return true;
    return false;
  }
  // Releases the arenas until the next UseArenas.
  void ReleaseArenas() {
    if (arenas_.empty()) return;
    for (Place& place : places_)
      if (std::exchange(place.storage, nullptr)) {
        Tensor* const tensor = place.blob->GetMutable<Tensor>();
        *tensor = Tensor(tensor->device());
      }
    for (Step& step : steps_) step.op->SetScratch(nullptr, 0);
    arenas_.clear();
    only_arena_ = nullptr;
    for (const IntrusivePtr<BoundPlan>& body : bodies_) body->ReleaseArenas();
  }

  // Points the values that are planned in a donated input to the memory of `tensor`. `plan_input`
  // is the input's number in the plan's view. An uninitialized tensor releases the previous one.
  void SetDonated(int plan_input, const Tensor& tensor) {
    for (const ArenaPlan& arena : specialization_->memory().arenas())
      for (const ArenaPlan::Donated& donated : arena.donated)
        if (donated.input == specialization_->ValueOf(plan_input))
          PutIntoDonated(arena, donated, tensor);
  }
  // Takes the output out of the donated input's memory, because the caller wants it elsewhere.
  void DetachFromDonated(int plan_output) {
    LeaveDonated(specialization_->memory().NumberOf(specialization_->ValueOf(plan_output)));
  }
  const Specialization& specialization() const { return *specialization_; }
  const IntrusivePtr<Specialization>& shared_specialization() const { return specialization_; }
  const std::vector<TensorInfo>& inputs() const { return specialization_->inputs(); }
  // Returns the blob of a value, by its number in the plan's view.
  Blob& blob(int plan_value) const { return nodes_->blob(specialization_->ValueOf(plan_value)); }
  // Returns the operator that computes a node of the plan's graph.
  OperatorBase& op(int plan_node) const { return nodes_->op(specialization_->NodeOf(plan_node)); }

  void Run(Timeout timeout) {
    Begin();
    try {
      replay_->Run(timeout);
      CompleteImplied();
      if (decisions_ != replay_->decisions()) [[unlikely]]
        ReportMode();
    } catch (...) {
      Clean();
      throw;
    }
  }
  // Runs a body on this thread, during a run of the enclosing graph.
  void RunBody() override {
    const int steps = static_cast<int>(steps_.size());
    first_id_ = root_->first_id_ + ids_before_;
    DropSharedValues();
    const StepRunner run(*this);
    for (int i = 0; i < steps; ++i) {
      if (root_->replay_->stopped()) [[unlikely]]
        Throw(ErrorCode::kCancelled, "the run around it has ended");
      run(i);
    }
  }
  // Starts a run. The thread that ends the run calls `done` once; `done` must call Clean after a
  // failure and CompleteImplied after a success.
  void RunAsync(UniqueFunction<void(std::exception_ptr)> done) {
    Begin();
    replay_->RunAsync(std::move(done));
  }
  // Completes the steps with Step::implied after a successful run. No event reports their ends,
  // which follow from the ends of other steps.
  void CompleteImplied() {
    if (implied_.empty()) return;
    for (int i : implied_) steps_[Index(i)].op->event().state()->Passed();
    MutexLock lock(in_flight_mutex_);
    for (int i : implied_) in_flight_[Index(i)].reset();
  }
  // Cancels the run; any thread may call it. Steps that have not begun are skipped, asynchronous
  // steps in flight fail.
  void Cancel() {
    const int run = runs_;
    replay_->Cancel();
    if (runs_ == run) CancelPending();  // the completion callback may have begun the next run
  }
  // Cleans up after a failed run. A device may still write to the memory of abandoned steps: these
  // keep the old arenas, and the next run gets new ones.
  void Clean() {
    if (!specialization_->may_pend()) return;
    CancelPending();
    while (replay_->pending() > 0) sched_yield();  // waits for completions on their way
    replay_->Drain();
    for (int i : implied_) SetInFlight(i, {});
    ReleaseArenas();
    shared_arenas_->Abandon();
    UseArenas(*shared_arenas_);
    for (size_t at = 0; at < places_.size(); ++at) {
      Blob& blob = *places_[at].blob;
      if (!places_[at].storage && view_.producer(places_[at].value) >= 0 && blob.IsType<Tensor>())
        *blob.GetMutable<Tensor>() = Tensor(blob.Get<Tensor>().device());
    }
  }

  std::string ExplainMode() const { return replay_->ExplainMode(); }

 private:
  // Runs steps on one thread, each under its own invocation. The ids of a run are consecutive, so
  // that a step neither draws nor stores an id.
  class StepRunner {
   public:
    explicit StepRunner(BoundPlan& plan)
        : plan_(plan), outer_(CurrentInvocation()), current_(t_invocation.current) {
      current_.parent = outer_.id;
    }
    StepRunner(StepRunner&&) = delete;
    ~StepRunner() { current_ = outer_; }
    NodeState operator()(int i) const {
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
    BoundPlan& plan_;
    const Invocation outer_;
    Invocation& current_;
  };
  // The interface through which Replay runs the steps.
  struct Body {
    BoundPlan* self;
    StepRunner OnThread() const { return StepRunner(*self); }
    bool Poll() const { return self->PollPending(); }
  };
  // The place where an operator must leave a value: its planned memory or, if `storage` is null,
  // any memory outside the arenas.
  struct Place {
    Blob* blob;
    const StorageBlock* storage;
    int64_t offset;
    int inferred;  // index in inferred_; -1 if nothing is known, or the operator infers itself
    int value;
    bool apart;  // must share no input's memory: a node rewrites the value, or an input of its node
    LayoutId layout;
  };
  // A node in the order of the run. The ranges are those of its items in places_ and waits_.
  struct Step {
    OperatorBase* op;
    const OperatorBase* ahead;  // an operator some steps later, to prefetch; null: none
    int first_place, end_place;
    int first_wait, end_wait;
    int stream;
    InvocationKind kind;
    bool direct, asynchronous;
    bool implied = false;  // no event reports its end: later device steps wait for it
  };

  void Begin() {
    ++runs_;
    DropSharedValues();
    cancelled_ = false;
    polled_until_ns_ = -1;
    first_id_ = NextInvocationIds(ids_of_run_);
  }
  // Drops what the last run left in values without planned memory if something else holds it: as a
  // view of an input or of another value, which an operator of this run would write through. Views
  // stand behind what they view, so that the values with memory of their own keep it.
  void DropSharedValues() {
    for (auto blob = unplanned_.rbegin(); blob != unplanned_.rend(); ++blob)
      if ((*blob)->IsType<Tensor>())
        if (Tensor& last = *(*blob)->GetMutable<Tensor>(); last.storage().use_count() > 1)
          last = Tensor(last.device());
  }
  // Records the mode of the replay, which changes with the measured times of its runs.
  OPKIT_COLD void ReportMode() {
    decisions_ = replay_->decisions();
    specialization_->SetMode(replay_->ExplainMode());
  }

  // Runs an operator that opens its own invocation.
  NodeState RunScoped(int i, const Step& step) {
    if (step.asynchronous) return Issue(i, step);
    step.op->Run();
    CheckPlaces(step);
    return NodeState::kDone;
  }
  // Fails the run and cancels its asynchronous steps, which might never finish otherwise.
  OPKIT_COLD void FailPending(std::exception_ptr failure) {
    replay_->Fail(std::move(failure));
    CancelPending();
  }
  void IssueTo(const Step& step) {
    const IssueScope issue(step.op->device().type != DeviceType::kCPU);
    for (int wait = step.first_wait; wait < step.end_wait; ++wait)
      step.op->WaitEvent(waits_[Index(wait)]->event(), step.stream);
    step.op->RunAsync(step.stream);
  }
  NodeState Issue(int i, const Step& step) {
    IssueTo(step);
    CheckPlaces(step);
    const Event& event = step.op->event();
    if (!step.implied && event.IsFinished()) {
      event.RethrowIfFailed();
      return NodeState::kDone;
    }
    SetInFlight(i, event);
    if (step.implied) {
      if (cancelled_) CancelPending();
      return NodeState::kDone;
    }
    event.SetCallback([this, i] { OnStepCompleted(i); });
    if (cancelled_) CancelPending();  // Cancel may have missed this step, which was not in flight
    return NodeState::kPending;
  }
  void OnStepCompleted(int i) {
    const std::exception_ptr failure = steps_[Index(i)].op->event().exception();
    SetInFlight(i, {});
    if (failure) FailPending(failure);
    replay_->Complete(i, failure);
  }
  // Polls the events of the steps in flight; the thread that waits for the run calls it. Returns
  // false if there is nothing to poll, or kPolledNs after the first poll of the run.
  bool PollPending() {
    const int64_t now = MonotonicNs();
    if (polled_until_ns_ < 0) polled_until_ns_ = now + EventState::kPolledNs;
    if (now >= polled_until_ns_) return false;
    for (int i : polled_) {
      std::optional<Event> event;
      {
        MutexLock lock(in_flight_mutex_);
        event = in_flight_[Index(i)];
      }
      if (event) static_cast<void>(event->Query());
    }
    return !polled_.empty();
  }
  // Stores a second handle of a step's event, for Cancel, which may come at any time. The
  // operator's own handle must not be read while the operator is issued again.
  void SetInFlight(int i, std::optional<Event> event) {
    MutexLock lock(in_flight_mutex_);
    in_flight_[Index(i)] = std::move(event);
  }
  void CancelPending() {
    cancelled_ = true;
    std::vector<Event> events;
    {
      MutexLock lock(in_flight_mutex_);
      for (const std::optional<Event>& event : in_flight_)
        if (event) events.push_back(*event);
    }
    for (Event& event : events) event.Cancel();
  }

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
    const InferenceCache::Output& inferred = inferred_[Index(place.inferred)];
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
  // Moves an output that the operator left elsewhere: a view of an input, or a value that it could
  // not write to its place. If the value fits there, it goes to its place: it then outlives the
  // input, and the next run writes only to the plan's memory.
  OPKIT_COLD void MoveOut(const Step& step, const Place& place) {
    Blob& blob = *place.blob;
    if (!blob.IsType<Tensor>()) return;
    Tensor& tensor = *blob.GetMutable<Tensor>();
    if (!tensor.initialized()) return;
    if (tensor.layout().id != place.layout)
      ThrowOtherLayout(step.op->def(), blob.name(), tensor, {place.layout, {}});
    const bool in_arena = static_cast<bool>(ArenaOf(tensor.storage().get()));
    const bool shared = place.apart && SharesInput(step, place);
    if (!in_arena && !place.storage && !shared) return;
    if (step.asynchronous || !IsHostAccessible(tensor.device().type)) {
      if (!in_arena && !shared) return;
      Throw(ErrorCode::kUnsupported, "operator ", ToString(step.op->def()), " made '", blob.name(),
            "' a view of an input while its device still works; declare the pair in place, or "
            "copy");
    }
    const bool is_standard = tensor.layout().is_standard();
    Tensor moved, *last = nullptr;
    const int64_t bytes = LayoutBytes(tensor.layout(), tensor.shape(), tensor.dtype());
    if (place.storage && bytes <= RoomOf(place))
      moved = Tensor::FromLayout(ArenaOf(place.storage), tensor.shape(), tensor.dtype(),
                                 tensor.layout(), place.offset, bytes);
    else if (!in_arena && !shared)
      return;
    else if (is_standard && !view_.IsOutput(place.value))
      moved = *(last = &LastMoved(place));
    if (is_standard) {
      moved.CopyFrom(tensor);
      if (last) *last = moved;
    } else {
      if (!moved.storage()) moved = MakeTensor(tensor.shape(), tensor.dtype(), tensor.layout());
      ConvertLayoutTo(tensor, moved);
    }
    tensor = std::move(moved);
  }
  // Returns the tensor to which MoveOut moved the value in the last run. Only the value's own step
  // calls it.
  Tensor& LastMoved(const Place& place) {
    MutexLock lock(moved_mutex_);
    return moved_[place.value];
  }
  // Returns the bytes that are planned for the value; 0 if it has no place. The root plans those of
  // a body.
  int64_t RoomOf(const Place& place) const {
    const size_t value = specialization_->memory().NumberOf(place.value);
    for (const ArenaPlan& arena : root_->specialization_->memory().arenas())
      if (arena.OffsetOf(value) >= 0) return arena.values[value].bytes;
    return 0;
  }
  bool SharesInput(const Step& step, const Place& place) const {
    const Blob& made = *place.blob;
    for (int i = 0; i < step.op->InputSize(); ++i) {
      if (!step.op->HasInput(i)) continue;
      const Blob& input = step.op->InputBlob(i);
      if (&input != &made && input.IsType<Tensor>() &&
          input.Get<Tensor>().SharesMemoryWith(made.Get<Tensor>()))
        return true;
    }
    return false;
  }
  // Returns the arena, or the donated input's memory, that has this block; null if there is none.
  Storage ArenaOf(const StorageBlock* storage) const {
    for (const Storage& arena : arenas_)
      if (arena.get() == storage) return arena;
    for (const auto& [input, donated] : donated_)
      if (donated.get() == storage) return donated;
    return {};
  }

  void MakeSteps() {
    const Schedule& schedule = specialization_->schedule();
    for (int i = 0; i < schedule.size(); ++i) {
      const int node = schedule.original_of(i);
      bool reads_rewritten = false;
      for (int value : view_.inputs(node))
        reads_rewritten |= value >= 0 && specialization_->IsRewritten(value);
      Step& step = steps_.emplace_back();
      step.op = &nodes_->op(node);
      step.stream = specialization_->stream(node);
      step.asynchronous = specialization_->IsAsynchronous(node);
      step.direct = step.op->RunsDirectly();
      step.kind = step.op->invocation_kind();
      // A node with bodies returns what these make, whatever was inferred: its outputs are checked.
      const bool infers = step.op->InfersOutputs() && !dynamic_cast<const RunsBodies*>(step.op);
      step.first_place = static_cast<int>(places_.size());
      for (int value : view_.outputs(node)) {
        if (value < 0) continue;
        places_.push_back({&nodes_->blob(value), nullptr, 0, infers ? -1 : AddInferred(value),
                           value, reads_rewritten || specialization_->IsRewritten(value),
                           specialization_->types()[value].layout.id});
        if (view_.producer(value) == node && !view_.IsOutput(value) &&
            !specialization_->memory().IsPlanned(value))
          unplanned_.push_back(places_.back().blob);
      }
      step.end_place = static_cast<int>(places_.size());
    }
    MakeWaits();
    if (!specialization_->may_pend()) return;
    in_flight_.resize(steps_.size());
    for (size_t i = 0; i < steps_.size(); ++i) {
      Step& step = steps_[i];
      // Host work completes its own event, also when it fails; it needs no polling.
      if (!step.asynchronous || IsHostAccessible(step.op->device().type)) continue;
      step.implied = FollowsFromOthers(static_cast<int>(i));
      if (step.implied) step.op->SetEventSeldomAsked();
      (step.implied ? implied_ : polled_).push_back(static_cast<int>(i));
    }
  }
  // True if the end of the step follows from the ends of other steps: a step waits for it on its
  // device, and no step waits for it on the host.
  bool FollowsFromOthers(int i) const {
    bool waited_for = false;
    for (int entry : EntriesOf(specialization_->schedule(), i)) {
      if (!Schedule::IsEarly(entry)) return false;
      const Step& next = steps_[Index(Schedule::TargetOf(entry))];
      waited_for |= !specialization_->IsOrderOnly(i, entry) && next.asynchronous &&
                    next.op->device().type == steps_[Index(i)].op->device().type;
    }
    return waited_for;
  }
  void MakeBodies() {
    for (size_t i = 0; i < specialization_->bodies().size(); ++i)
      bodies_.push_back(MakeIntrusive<BoundPlan>(specialization_->bodies()[i]->plan,
                                                 *nodes_->bodies()[i], root_));
    const auto& planned = specialization_->bodies();
    for (size_t i = 0; i < planned.size();) {
      const int node = planned[i]->node;
      auto& carrier = dynamic_cast<RunsBodies&>(nodes_->op(node));
      std::vector<BodyRunner*> runners(carrier.bodies().size(), nullptr);
      for (; i < planned.size() && planned[i]->node == node; ++i)
        runners[Index(planned[i]->number)] = bodies_[i].get();
      carrier.UseRunners(std::move(runners));
    }
  }
  // Chooses the operators to prefetch: those of a large graph lie scattered in memory, but the
  // order of the steps, bodies included, is known.
  void LookAhead() {
    constexpr size_t kAhead = 6;
    std::vector<Step*> order;
    AppendSteps(order);
    for (size_t i = 0; i < order.size(); ++i)
      order[i]->ahead = i + kAhead < order.size() ? order[i + kAhead]->op : nullptr;
  }
  // Gives the steps of a run, bodies included, consecutive numbers from `next` on. Returns the next
  // free number.
  uint64_t NumberIds(uint64_t next) {
    ids_before_ = next;
    next += steps_.size();
    for (const IntrusivePtr<BoundPlan>& body : bodies_) next = body->NumberIds(next);
    return next;
  }
  void AppendSteps(std::vector<Step*>& order) {
    const auto& planned = specialization_->bodies();
    for (size_t i = 0; i < steps_.size(); ++i) {
      order.push_back(&steps_[i]);
      const int node = specialization_->schedule().original_of(static_cast<int>(i));
      for (const std::unique_ptr<PlannedBody>& body : specialization_->BodiesOf(node))
        bodies_[Index(&body - planned.data())]->AppendSteps(order);
    }
  }
  int AddInferred(int value) {
    const TensorInfo& info = specialization_->types()[value];
    const bool known = info.shape.is_known();
    if (!known && info.dtype == DType::kUndefined) return -1;
    inferred_.push_back({info.dtype, known, known ? info.shape.ToShape() : Shape()});
    return static_cast<int>(inferred_.size()) - 1;
  }
  // Collects the operators that each asynchronous step waits for on the device: the sources of the
  // early edges to it.
  void MakeWaits() {
    const Schedule& schedule = specialization_->schedule();
    const FlatLists early(steps_.size(), [&](auto add) {
      for (int i = schedule.size() - 1; i >= 0; --i)
        for (int entry : EntriesOf(schedule, i))
          if (Schedule::IsEarly(entry) && !specialization_->IsOrderOnly(i, entry))
            add(Index(Schedule::TargetOf(entry)), Index(i));
    });
    for (size_t i = 0; i < steps_.size(); ++i) {
      steps_[i].first_wait = static_cast<int>(waits_.size());
      if (steps_[i].asynchronous)
        for (int from : early.of(i)) waits_.push_back(steps_[Index(from)].op);
      steps_[i].end_wait = static_cast<int>(waits_.size());
    }
  }
  void PutIntoDonated(const ArenaPlan& arena, const ArenaPlan::Donated& donated,
                      const Tensor& input) {
    std::erase_if(donated_, [&](const auto& held) { return held.first == donated.input; });
    if (input.initialized()) donated_.emplace_back(donated.input, input.storage());
    for (Place& place : places_) {
      const size_t value = specialization_->memory().NumberOf(place.value);
      const int64_t offset = arena.OffsetOf(value), bytes = arena.values[value].bytes;
      if (bytes == 0 || offset < donated.begin || offset >= donated.end) continue;
      place.storage = input.initialized() ? input.storage().get() : nullptr;
      place.offset = input.byte_offset() + offset - donated.begin;
      if (specialization_->OuterOf(place.value) >= 0) continue;
      if (input.initialized())
        SetTensor(place, input.storage(), bytes);
      else if (!view_.IsOutput(place.value))  // the last run's outputs stay
        *place.blob->GetMutable<Tensor>() = Tensor(input.device());
    }
    for (const IntrusivePtr<BoundPlan>& body : bodies_) body->PutIntoDonated(arena, donated, input);
  }
  void LeaveDonated(size_t value) {
    for (Place& place : places_)
      if (specialization_->memory().NumberOf(place.value) == value) place.storage = nullptr;
    for (const IntrusivePtr<BoundPlan>& body : bodies_) body->LeaveDonated(value);
  }
  // Makes the value's blob a tensor in `storage`, at the place's offset.
  void SetTensor(const Place& place, const Storage& storage, int64_t bytes) {
    const TensorInfo& info = specialization_->types()[place.value];
    *place.blob->GetMutable<Tensor>() =
        info.layout.is_standard() ? Tensor(storage, place.offset, *info.shape.Most(), info.dtype)
                                  : Tensor::FromLayout(storage, info.shape.ToShape(), info.dtype,
                                                       info.layout, place.offset, bytes);
  }
  bool HasLargeEnough(SharedArenas& arenas) const {
    for (size_t a = 0; a < arenas_.size(); ++a) {
      const ArenaPlan& planned = specialization_->memory().arenas()[a];
      if (arenas_[a] != TakeArena(planned, arenas)) return false;
    }
    return true;
  }
  Storage TakeArena(const ArenaPlan& arena, SharedArenas& arenas) const {
    return InContext([&] { return arenas.Take(arena.device, arena.plan.arena_bytes); },
                     [&] { return specialization_->memory().LargestIn(arena); });
  }
  // Puts the values of this plan and of its bodies into arenas.
  void PutInto(const std::vector<ArenaPlan>& planned, const std::vector<Storage>& arenas) {
    arenas_ = arenas;
    several_arenas_ = arenas_.size() > 1 || HasDonated(planned);
    only_arena_ = arenas_.size() == 1 ? arenas_[0].get() : nullptr;
    for (size_t a = 0; a < arenas_.size(); ++a)
      if (arenas_[a]) FillArena(planned[a], arenas_[a]);
    for (const IntrusivePtr<BoundPlan>& body : bodies_) body->PutInto(planned, arenas);
  }
  static bool HasDonated(const std::vector<ArenaPlan>& arenas) {
    return std::ranges::any_of(arenas,
                               [](const ArenaPlan& arena) { return !arena.donated.empty(); });
  }
  void FillArena(const ArenaPlan& arena, const Storage& storage) {
    for (size_t at = 0; at < places_.size(); ++at) {
      Place& place = places_[at];
      const size_t value = specialization_->memory().NumberOf(place.value);
      const int64_t offset = arena.OffsetOf(value);
      if (offset < 0 || arena.values[value].bytes == 0 || view_.producer(place.value) < 0) continue;
      if (offset >= arena.plan.arena_bytes) continue;  // in a donated input
      place.storage = storage.get();
      place.offset = offset;
      if (specialization_->OuterOf(place.value) >= 0) continue;  // set by the enclosing plan
      SetTensor(place, storage, arena.values[value].bytes);
    }
    for (size_t step = 0; step < steps_.size(); ++step) {
      const size_t value = specialization_->memory().NumberOfScratch(static_cast<int>(step));
      const int64_t offset = arena.OffsetOf(value);
      if (offset >= 0 && arena.values[value].bytes > 0)
        steps_[step].op->SetScratch(static_cast<char*>(storage->data()) + offset,
                                    arena.values[value].bytes, storage);
    }
  }

  // Members that a run of a body reads come first, in one cache line.
  std::vector<Step> steps_;
  BoundPlan* const root_;    // the plan of the outermost graph; `this` unless this is a body
  uint64_t first_id_ = 0;    // invocation id of the first step in this run
  uint64_t ids_before_ = 0;  // steps of the whole run that are numbered before these
  const GraphView& view_;
  IntrusivePtr<Specialization> specialization_;
  std::unique_ptr<BoundNodes> own_nodes_;  // null for a body: the root owns its nodes
  BoundNodes* const nodes_;
  std::vector<IntrusivePtr<BoundPlan>> bodies_;
  std::vector<InferenceCache::Output> inferred_;  // by Place::inferred
  std::vector<Place> places_;                     // the outputs of each step, step by step
  std::vector<OperatorBase*> waits_;  // the operators that each step waits for, step by step
  SharedArenas* shared_arenas_ = nullptr;
  std::vector<Storage> arenas_;  // from shared_arenas_; empty between ReleaseArenas and UseArenas
  std::vector<std::pair<int, Storage>> donated_;  // donated inputs, by value, and their memory
  const StorageBlock* only_arena_ = nullptr;
  bool several_arenas_ = false;
  int decisions_ = 0;
  uint64_t ids_of_run_ = 0;
  std::atomic<bool> cancelled_{false};
  std::atomic<int> runs_{0};
  std::vector<Blob*> unplanned_;  // of values that runs neither plan memory for nor return
  Mutex moved_mutex_;
  std::map<int, Tensor> moved_;  // values that MoveOut gave memory of their own
  Mutex in_flight_mutex_;
  std::vector<std::optional<Event>> in_flight_;  // by step; empty unless the step may be unfinished
  std::vector<int> implied_, polled_;            // steps on devices, with and without Step::implied
  int64_t polled_until_ns_ = -1;                 // negative: this run was not polled yet
  std::optional<Replay<Body>> replay_;           // empty for a body, which its operator runs
};

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_GRAPH_PLAN_BOUND_PLAN_HPP_
