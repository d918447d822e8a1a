// Definitions of BoundPlan: makes its steps, puts its values into arenas, and runs it.
#ifndef OPKIT_GRAPH_PLAN_IMPL_BOUND_PLAN_IPP_
#define OPKIT_GRAPH_PLAN_IMPL_BOUND_PLAN_IPP_

#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/memory/flat_lists.hpp"
#include "opkit/graph/plan/bound_plan.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Describes recorded steps, for the failure of their event.
class RecordedContext final : public FailureContext {
 public:
  explicit RecordedContext(std::string text) : text_(std::move(text)) {}
  std::string Describe() const override { return text_; }

 private:
  const std::string text_;
};

OPKIT_INLINE BoundPlan::BoundPlan(IntrusivePtr<Specialization> specialization,
                                  std::unique_ptr<BoundNodes> nodes, ThreadPool& pool,
                                  ReplayOptions options, bool records)
    : BoundPlan(std::move(specialization), *nodes, this) {
  own_nodes_ = std::move(nodes);
  LookAhead();
  ids_of_run_ = NumberIds(0);
  replay_.emplace(specialization_->schedule(), Body{this, false}, options, pool);
  running_ = &*replay_;
  if (records && specialization_->may_pend()) FindRecorded(pool, options);
  ReportMode();
}

OPKIT_COLD OPKIT_INLINE void BoundPlan::FindRecorded(ThreadPool& pool, ReplayOptions options) {
  RecordedPart part = RecordedPart::Of(*specialization_, *nodes_);
  why_not_recorded_ = part.why_not.empty() ? ""
                                           : StrCat("steps on ", ToString(part.device),
                                                    " are not recorded: ", part.why_not);
  if (!part.record) return;
  recorded_ = std::make_unique<Recorded>(std::move(part), *specialization_, *nodes_);
  const RecordedPart& found = recorded_->part;
  const auto name = [&](int step) { return ToString(steps_[step].op->def()); };
  recorded_->context = MakeIntrusive<RecordedContext>(
      StrCat("in ", found.steps.size(), " recorded steps, from ", name(found.steps.front()), " to ",
             name(found.steps.back())));
  options.ns_per_node = 0;
  recorded_->replay.emplace(*found.schedule, Body{this, true}, options, pool);
  in_flight_.resize(steps_.size() + 1);
}

OPKIT_INLINE std::string BoundPlan::ExplainMode() const {
  std::string out = replay_->ExplainMode();
  const std::string recorded = recorded_ ? recorded_->runs.Explain() : why_not_recorded_;
  return recorded.empty() ? out : StrCat(out, "; ", recorded);
}

OPKIT_INLINE void BoundPlan::UseArenas(SharedArenas& arenas) {
  shared_arenas_ = &arenas;
  const std::vector<ArenaPlan>& planned = specialization_->memory().arenas();
  if (arenas_.size() == planned.size() && HasLargeEnough(arenas)) return;
  ReleaseArenas();
  std::vector<Storage> taken;
  for (const ArenaPlan& arena : planned) taken.push_back(TakeArena(arena, arenas));
  PutInto(planned, taken);
}

OPKIT_INLINE bool BoundPlan::NeedsLargerArenas(const SharedArenas& arenas) const {
  for (const ArenaPlan& arena : specialization_->memory().arenas())
    if (arenas.MustGrow(arena.device, arena.plan.arena_bytes)) return true;
  return false;
}

OPKIT_INLINE void BoundPlan::ReleaseArenas() {
  if (arenas_.empty()) return;
  for (Place& place : places_)
    if (std::exchange(place.storage, nullptr)) {
      Tensor* const tensor = place.blob->GetMutable<Tensor>();
      *tensor = Tensor(tensor->device());
    }
  for (Step& step : steps_) step.op->SetScratch(nullptr, 0);
  if (recorded_) recorded_->runs.Drop();
  arenas_.clear();
  only_arena_ = nullptr;
  for (const IntrusivePtr<BoundPlan>& body : bodies_) body->ReleaseArenas();
}

OPKIT_INLINE void BoundPlan::SetDonated(int plan_input, const Tensor& tensor) {
  for (const ArenaPlan& arena : specialization_->memory().arenas())
    for (const ArenaPlan::Donated& donated : arena.donated)
      if (donated.input == specialization_->ValueOf(plan_input))
        PutIntoDonated(arena, donated, tensor);
}

OPKIT_INLINE void BoundPlan::Run(Timeout timeout) {
  Begin();
  try {
    running().Run(timeout);
  } catch (...) {
    Clean();
    throw;
  }
  Succeeded();
  if (decisions_ != replay_->decisions()) [[unlikely]]
    ReportMode();
}

OPKIT_INLINE void BoundPlan::RunBody() {
  const int steps = static_cast<int>(steps_.size());
  first_id_ = root_->first_id_ + ids_before_;
  DropSharedValues();
  const StepRunner run(*this);
  const auto require_running = [this] {
    if (root_->running().stopped()) [[unlikely]]
      Throw(ErrorCode::kCancelled, "the run of the enclosing graph has ended");
  };
  if (steps == 0) require_running();  // a node may run the body again and again
  for (int i = 0; i < steps; ++i) {
    require_running();
    run(i);
  }
}

OPKIT_INLINE void BoundPlan::Succeeded() {
  if (is_recorded_run()) {
    recorded_->runs.LaunchEnded();
  } else {
    if (recorded_) recorded_->runs.OperatorsRan();
    if (!implied_.empty()) {
      for (int i : implied_) steps_[i].op->event().state()->Passed();
      MutexLock lock(in_flight_mutex_);
      for (int i : implied_) in_flight_[i].reset();
    }
  }
  if (!deferring_.empty()) ThrowDeferred();
}

OPKIT_INLINE void BoundPlan::ThrowDeferred() {
  std::exception_ptr first;
  for (DefersFailures* const op : deferring_) {
    try {
      op->ThrowDeferred();
    } catch (...) {  // later operators may have failed because of the first one
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

OPKIT_INLINE void BoundPlan::Cancel() {
  const int run = runs_;
  running().Cancel();
  if (runs_ == run) CancelPending();  // the completion callback may have begun the next run
}

OPKIT_INLINE void BoundPlan::Clean() {
  if (!specialization_->may_pend()) return;
  CancelPending();
  while (running().pending() > 0) sched_yield();  // waits for completions on their way
  running().Drain();
  for (int i : implied_) SetInFlight(i, {});
  for (DefersFailures* const op : deferring_) op->DiscardDeferred();
  if (recorded_) recorded_->runs.Drop();  // also if the plan has no arenas
  ReleaseArenas();
  shared_arenas_->Abandon();
  UseArenas(*shared_arenas_);
  for (size_t at = 0; at < places_.size(); ++at) {
    Blob& blob = *places_[at].blob;
    if (!places_[at].storage && view_.producer(places_[at].value) >= 0 && blob.IsType<Tensor>())
      *blob.GetMutable<Tensor>() = Tensor(blob.Get<Tensor>().device());
  }
}

OPKIT_INLINE NodeState BoundPlan::RunScoped(int i, const Step& step) {
  if (step.asynchronous) return Issue(i, step);
  step.op->Run();
  CheckPlaces(step);
  return NodeState::kDone;
}

OPKIT_INLINE void BoundPlan::IssueTo(const Step& step) {
  const IssueScope issue(step.op->device().type != DeviceType::kCPU);
  for (int wait = step.first_wait; wait < step.end_wait; ++wait)
    step.op->WaitEvent(waits_[wait]->event(), step.stream);
  step.op->RunAsync(step.stream);
}

OPKIT_INLINE NodeState BoundPlan::Issue(int i, const Step& step) {
  IssueTo(step);
  const bool is_late = MakesOutputsLate(i);
  if (!is_late) CheckPlaces(step);
  const Event& event = step.op->event();
  if (!step.implied && event.IsFinished()) {
    event.RethrowIfFailed();
    if (is_late) TakeOutputs(i);
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

OPKIT_COLD OPKIT_INLINE void BoundPlan::TakeOutputs(int i) {
  receiving_[i]->TakeOutputs();
  CheckPlaces(steps_[i]);
}

OPKIT_INLINE void BoundPlan::OnStepCompleted(int i) {
  std::exception_ptr failure = steps_[i].op->event().exception();
  if (!failure && MakesOutputsLate(i)) {
    try {
      TakeOutputs(i);
    } catch (...) {
      failure = std::current_exception();
    }
  }
  SetInFlight(i, {});
  if (failure) FailPending(failure);
  running().Complete(i, failure);
}

OPKIT_INLINE bool BoundPlan::IsWatched() const {
  if (CurrentSpanSink()) return true;
  if (!may_be_observed_) return false;
  return std::ranges::any_of(recorded_->part.steps,
                             [this](int step) { return steps_[step].op->NumObservers() > 0; });
}

OPKIT_INLINE bool BoundPlan::ChoosesRecording() {
  if (IsWatched()) return false;
  const std::string before = recorded_->runs.why_not();
  const bool chosen =
      recorded_->runs.Choose([this](WorkRecorder& recorder) { IssueRecorded(recorder); });
  if (recorded_->runs.why_not() != before) [[unlikely]]
    ReportMode();
  return chosen;
}

OPKIT_COLD OPKIT_INLINE void BoundPlan::IssueRecorded(WorkRecorder& recorder) {
  const RecordedPart& part = recorded_->part;
  IndexedVector<int> marks(steps_.size(), -1);
  IndexedVector<char> marked(steps_.size(), 0);
  for (const RecordedPart::Wait& wait : part.waits) marked[wait.from] = 1;
  auto wait = part.waits.begin();
  for (const int i : part.steps) {
    const Step& step = steps_[i];
    for (; wait != part.waits.end() && wait->to == i; ++wait)
      recorder.Wait(step.stream, marks[wait->from]);
    step.op->RunRecorded(step.stream);
    CheckPlaces(step);
    if (marked[i]) marks[i] = recorder.Mark(step.stream);
  }
}

OPKIT_INLINE NodeState BoundPlan::LaunchRecorded() {
  Event& event = recorded_->event;
  try {
    if (event.state()->status() != EventStatus::kInitialized) event.Reset();
    event.state()->SetContext(recorded_->context);
    recorded_->runs.Launch(event, arenas_);
  } catch (...) {
    FailPending(std::current_exception());
    throw;
  }
  SetInFlight(recorded_slot(), event);
  event.SetCallback([this] { OnRecordedCompleted(); });
  if (cancelled_) CancelPending();  // Cancel may have missed this launch
  return NodeState::kPending;
}

OPKIT_INLINE void BoundPlan::OnRecordedCompleted() {
  const std::exception_ptr failure = recorded_->event.exception();
  SetInFlight(recorded_slot(), {});
  if (failure) FailPending(failure);
  running().Complete(recorded_->part.NodeOfRecorded(), failure);
}

OPKIT_INLINE bool BoundPlan::PollPending() {
  const int64_t now = MonotonicNs();
  if (polled_until_ns_ < 0) polled_until_ns_ = now + EventState::kPolledNs;
  if (now >= polled_until_ns_) return false;
  const auto poll = [this](int i) {
    std::optional<Event> event;
    {
      MutexLock lock(in_flight_mutex_);
      event = in_flight_[i];
    }
    if (event) static_cast<void>(event->Query());
  };
  if (is_recorded_run()) return poll(recorded_slot()), true;
  for (int i : polled_) poll(i);
  return !polled_.empty();
}

OPKIT_INLINE void BoundPlan::CancelPending() {
  cancelled_ = true;
  std::vector<Event> events;
  {
    MutexLock lock(in_flight_mutex_);
    for (const std::optional<Event>& event : in_flight_)
      if (event) events.push_back(*event);
  }
  for (Event& event : events) event.Cancel();
}

OPKIT_COLD OPKIT_INLINE void BoundPlan::MoveOut(const Step& step, const Place& place) {
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
  const int64_t bytes = place.storage && !IsObject(tensor.dtype())
                            ? LayoutBytes(tensor.layout(), tensor.shape(), tensor.dtype())
                            : -1;
  if (bytes >= 0 && bytes <= RoomOf(place))
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

OPKIT_INLINE int64_t BoundPlan::RoomOf(const Place& place) const {
  const size_t value = specialization_->memory().NumberOf(place.value);
  for (const ArenaPlan& arena : root_->specialization_->memory().arenas())
    if (arena.OffsetOf(value) >= 0) return arena.values[value].bytes;
  return 0;
}

OPKIT_INLINE bool BoundPlan::SharesInput(const Step& step, const Place& place) const {
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

OPKIT_INLINE Storage BoundPlan::ArenaOf(const StorageBlock* storage) const {
  for (const Storage& arena : arenas_)
    if (arena.get() == storage) return arena;
  for (const auto& [input, donated] : donated_)
    if (donated.get() == storage) return donated;
  return {};
}

OPKIT_INLINE void BoundPlan::MakeSteps() {
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
    // A node with bodies returns the tensors of its bodies, whatever types were inferred: its
    // outputs are checked.
    const bool infers = step.op->InfersOutputs() && !dynamic_cast<const RunsBodies*>(step.op);
    step.first_place = static_cast<int>(places_.size());
    for (int value : view_.outputs(node)) {
      if (value < 0) continue;
      places_.push_back({&nodes_->blob(value), nullptr, 0, infers ? -1 : AddInferred(value), value,
                         reads_rewritten || specialization_->IsRewritten(value),
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
    if (auto* const op = dynamic_cast<DefersFailures*>(step.op)) deferring_.push_back(op);
    if (auto* const op = dynamic_cast<ReceivesOutputs*>(step.op)) {
      receiving_.resize(steps_.size());
      receiving_[i] = op;
    }
    // Host work completes its own event, also when it fails; it needs no polling.
    if (!step.asynchronous || IsHostAccessible(step.op->device().type)) continue;
    step.implied = FollowsFromOthers(static_cast<int>(i));
    if (step.implied) step.op->DeferEventCompletion();
    (step.implied ? implied_ : polled_).push_back(static_cast<int>(i));
  }
}

OPKIT_INLINE bool BoundPlan::FollowsFromOthers(int i) const {
  bool waited_for = false;
  for (int entry : EntriesOf(specialization_->schedule(), i)) {
    if (!Schedule::IsEarly(entry)) return false;
    const Step& next = steps_[Schedule::TargetOf(entry)];
    waited_for |= !specialization_->IsOrderOnly(i, entry) && next.asynchronous &&
                  next.op->device().type == steps_[i].op->device().type;
  }
  return waited_for;
}

OPKIT_INLINE void BoundPlan::MakeBodies() {
  for (size_t i = 0; i < specialization_->bodies().size(); ++i)
    bodies_.push_back(
        MakeIntrusive<BoundPlan>(specialization_->bodies()[i]->plan, *nodes_->bodies()[i], root_));
  const auto& planned = specialization_->bodies();
  for (size_t i = 0; i < planned.size();) {
    const int node = planned[i]->node;
    auto& carrier = dynamic_cast<RunsBodies&>(nodes_->op(node));
    IndexedVector<BodyRunner*> runners(carrier.bodies().size(), nullptr);
    for (; i < planned.size() && planned[i]->node == node; ++i)
      runners[planned[i]->number] = bodies_[i].get();
    carrier.UseRunners(std::move(runners));
  }
}

OPKIT_INLINE void BoundPlan::LookAhead() {
  constexpr size_t kAhead = 6;
  std::vector<Step*> order;
  AppendSteps(order);
  for (size_t i = 0; i < order.size(); ++i)
    order[i]->ahead = i + kAhead < order.size() ? order[i + kAhead]->op : nullptr;
}

OPKIT_INLINE uint64_t BoundPlan::NumberIds(uint64_t next) {
  ids_before_ = next;
  next += steps_.size();
  for (const IntrusivePtr<BoundPlan>& body : bodies_) next = body->NumberIds(next);
  return next;
}

OPKIT_INLINE void BoundPlan::AppendSteps(std::vector<Step*>& order) {
  const auto& planned = specialization_->bodies();
  for (size_t i = 0; i < steps_.size(); ++i) {
    order.push_back(&steps_[i]);
    const int node = specialization_->schedule().original_of(static_cast<int>(i));
    for (const std::unique_ptr<PlannedBody>& body : specialization_->BodiesOf(node))
      bodies_[&body - planned.data()]->AppendSteps(order);
  }
}

OPKIT_INLINE int BoundPlan::AddInferred(int value) {
  const TensorInfo& info = specialization_->types()[value];
  const bool known = info.shape.is_known();
  if (!known && info.dtype == DType::kUndefined) return -1;
  inferred_.push_back({info.dtype, known, known ? info.shape.ToShape() : Shape()});
  return static_cast<int>(inferred_.size()) - 1;
}

OPKIT_INLINE void BoundPlan::MakeWaits() {
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
      for (int from : early.of(i)) waits_.push_back(steps_[from].op);
    steps_[i].end_wait = static_cast<int>(waits_.size());
  }
}

OPKIT_INLINE void BoundPlan::PutIntoDonated(const ArenaPlan& arena,
                                            const ArenaPlan::Donated& donated,
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

OPKIT_INLINE void BoundPlan::LeaveDonated(size_t value) {
  for (Place& place : places_)
    if (specialization_->memory().NumberOf(place.value) == value) place.storage = nullptr;
  for (const IntrusivePtr<BoundPlan>& body : bodies_) body->LeaveDonated(value);
}

OPKIT_INLINE void BoundPlan::SetTensor(const Place& place, const Storage& storage, int64_t bytes) {
  const TensorInfo& info = specialization_->types()[place.value];
  *place.blob->GetMutable<Tensor>() =
      info.layout.is_standard() ? Tensor(storage, place.offset, *info.shape.Most(), info.dtype)
                                : Tensor::FromLayout(storage, info.shape.ToShape(), info.dtype,
                                                     info.layout, place.offset, bytes);
}

OPKIT_INLINE bool BoundPlan::HasLargeEnough(SharedArenas& arenas) const {
  for (size_t a = 0; a < arenas_.size(); ++a) {
    const ArenaPlan& planned = specialization_->memory().arenas()[a];
    if (arenas_[a] != TakeArena(planned, arenas)) return false;
  }
  return true;
}

OPKIT_INLINE void BoundPlan::PutInto(const std::vector<ArenaPlan>& planned,
                                     const std::vector<Storage>& arenas) {
  arenas_ = arenas;
  several_arenas_ = arenas_.size() > 1 || HasDonated(planned);
  only_arena_ = arenas_.size() == 1 ? arenas_[0].get() : nullptr;
  for (size_t a = 0; a < arenas_.size(); ++a)
    if (arenas_[a]) FillArena(planned[a], arenas_[a]);
  for (const IntrusivePtr<BoundPlan>& body : bodies_) body->PutInto(planned, arenas);
}

OPKIT_INLINE void BoundPlan::FillArena(const ArenaPlan& arena, const Storage& storage) {
  for (size_t at = 0; at < places_.size(); ++at) {
    Place& place = places_[at];
    const size_t value = specialization_->memory().NumberOf(place.value);
    const int64_t offset = arena.OffsetOf(value);
    if (offset < 0 || arena.values[value].bytes == 0 || view_.producer(place.value) < 0) continue;
    if (offset >= arena.plan.arena_bytes) continue;  // the value lies in a donated input
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

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_PLAN_IMPL_BOUND_PLAN_IPP_
