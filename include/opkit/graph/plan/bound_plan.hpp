// BoundPlan: a specialization with operators, tensors and arenas of its own, which a Replay runs
// step by step. What an executor keeps for each set of input shapes.
#ifndef OPKIT_GRAPH_PLAN_BOUND_PLAN_HPP_
#define OPKIT_GRAPH_PLAN_BOUND_PLAN_HPP_

#include "opkit/engine/schedule/replay.hpp"
#include "opkit/graph/plan/specialization.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Operators that share a stream are issued to it one at a time: what fails between an operator's
// work and its event would otherwise be taken for another's.
inline Mutex& IssueMutex(Device device, int stream) {
  static Mutex mutexes[64];
  return mutexes[(static_cast<unsigned>(device.type) * 31 +
                  static_cast<unsigned>(device.index) * 7 + static_cast<unsigned>(stream)) %
                 64];
}

template <class Parts>
class BoundPlan final : public RefCounted {
  using GraphView = typename Parts::GraphView;
  using Schedule = typename Parts::Schedule;
  using OperatorBase = typename Parts::OperatorBase;
  using Specialization = detail::Specialization<Parts>;
  using BoundNodes = detail::BoundNodes<Parts>;

 public:
  BoundPlan(const GraphView& view, IntrusivePtr<Specialization> specialization,
            std::unique_ptr<BoundNodes> nodes, ThreadPool& pool, ReplayOptions options)
      : view_(view),
        specialization_(std::move(specialization)),
        nodes_(std::move(nodes)),
        replay_(specialization_->schedule(), Body{this}, options, pool) {
    MakeSteps();
    AllocateArenas();
    TellMode();
  }
  BoundPlan(const BoundPlan&) = delete;
  BoundPlan& operator=(const BoundPlan&) = delete;

  const Specialization& specialization() const { return *specialization_; }
  Blob& blob(int value) const { return nodes_->blob(value); }
  OperatorBase& op(int node) const { return nodes_->op(node); }

  void Run(Timeout timeout) {
    Begin();
    try {
      replay_.Run(timeout);
      if (!settled_) [[unlikely]]
        TellMode();
    } catch (...) {
      Clean();
      throw;
    }
  }
  // `done` is called once, by the thread that ends the run; what failed is to be cleaned after it.
  void RunAsync(UniqueFunction<void(std::exception_ptr)> done) {
    Begin();
    replay_.RunAsync(std::move(done));
  }
  // From any thread: steps that have not begun are skipped, asynchronous ones in flight fail.
  void Cancel() {
    const int run = runs_;
    replay_.Cancel();
    if (runs_ == run) CancelPending();  // what was told of the end may have begun the next run
  }
  // After a run that failed. What was given up may still be written by a device: it keeps that
  // memory, and the next run gets other.
  void Clean() {
    if (!specialization_->may_pend()) return;
    CancelPending();
    while (replay_.pending() > 0) sched_yield();  // completions that are on their way
    replay_.Drain();
    AllocateArenas();
    for (size_t at = 0; at + 1 < places_.size(); ++at) {
      Blob& blob = *places_[at].blob;
      if (!places_[at].storage && view_.producer(places_[at].value) >= 0 && blob.IsType<Tensor>())
        *blob.GetMutable<Tensor>() = Tensor(blob.Get<Tensor>().device());
    }
  }

  std::string ExplainMode() const { return replay_.ExplainMode(); }

 private:
  struct Body {
    BoundPlan* self;
    NodeState operator()(int step) const { return self->RunStep(step); }
  };
  // Where an operator must leave a value: memory that was planned for it, or anywhere but in an
  // arena when `storage` is null.
  struct Place {
    Blob* blob;
    const void* tensor;  // what the blob held when it was planned; to be looked at by address only
    const StorageBlock* storage;
    int64_t offset;
    int value;
    bool apart;  // it, or what it may be a view of, is rewritten: it must share no input's memory
  };
  struct Step {
    OperatorBase* op;
    int first_place, end_place;
    int first_wait, end_wait;
    int stream;
    bool asynchronous;
  };

  void Begin() {
    ++runs_;
    cancelled_ = false;
  }
  // Until it is settled, the mode changes with what the runs take.
  OPKIT_COLD void TellMode() {
    settled_ = replay_.settled();
    specialization_->SetMode(replay_.ExplainMode());
  }

  NodeState RunStep(int i) {
    Step& step = steps_[static_cast<size_t>(i)];
    Prefetch(i + kAhead);
    try {
      if (step.asynchronous) [[unlikely]]
        return Issue(i, step);
      step.op->Run();
      CheckPlaces(step);
      return NodeState::kDone;
    } catch (...) {
      if (specialization_->may_pend()) FailPending(std::current_exception());
      throw;
    }
  }
  // Operators and tensors of a large graph lie where they were allocated; the order of the steps is
  // known, so that they can be on their way when their turn comes.
  static constexpr int kAhead = 6;
  void Prefetch(int i) const {
    if (static_cast<size_t>(i) >= steps_.size()) return;
    const Step& step = steps_[static_cast<size_t>(i)];
    __builtin_prefetch(step.op);
    const Place& place = places_[static_cast<size_t>(step.first_place)];
    __builtin_prefetch(place.blob);
    __builtin_prefetch(place.tensor);
  }
  // What still runs elsewhere may never finish: it must not hold up a run that has failed.
  OPKIT_COLD void FailPending(std::exception_ptr failure) {
    replay_.Fail(std::move(failure));
    CancelPending();
  }
  void IssueTo(const Step& step) {
    for (int wait = step.first_wait; wait < step.end_wait; ++wait)
      step.op->WaitEvent(waits_[static_cast<size_t>(wait)]->event(), step.stream);
    step.op->RunAsync(step.stream);
  }
  NodeState Issue(int i, Step& step) {
    if (step.op->device().type == DeviceType::kCPU) {  // no stream; the body may run a graph itself
      IssueTo(step);
    } else {
      MutexLock lock(IssueMutex(step.op->device(), step.stream));
      IssueTo(step);
    }
    CheckPlaces(step);
    const Event& event = step.op->event();
    if (event.IsFinished()) {
      event.RethrowIfFailed();
      return NodeState::kDone;
    }
    SetFlight(i, event);
    event.SetCallback([this, i] { Land(i); });
    if (cancelled_) CancelPending();  // which may have looked before this was in flight
    return NodeState::kPending;
  }
  void Land(int i) {
    const std::exception_ptr failure = steps_[static_cast<size_t>(i)].op->event().exception();
    SetFlight(i, {});
    if (failure) FailPending(failure);
    replay_.Complete(i, failure);
  }
  // Cancel may come at any time, and an operator's own handle is not to be read while it is issued
  // again: what is in flight has a second one.
  void SetFlight(int i, std::optional<Event> event) {
    MutexLock lock(flight_mutex_);
    flights_[static_cast<size_t>(i)] = std::move(event);
  }
  void CancelPending() {
    cancelled_ = true;
    std::vector<typename Parts::Event> events;
    {
      MutexLock lock(flight_mutex_);
      for (const std::optional<Event>& flight : flights_)
        if (flight) events.push_back(*flight);
    }
    for (auto& event : events) event.Cancel();
  }

  // One look at each output on the hot path: it is a tensor, and in its place.
  void CheckPlaces(const Step& step) {
    const Place* const end = places_.data() + step.end_place;
    for (const Place* place = places_.data() + step.first_place; place != end; ++place)
      if (!IsInPlace(*place)) [[unlikely]]
        MoveOut(step, *place);
  }
  bool IsInPlace(const Place& place) const {
    const Blob& blob = *place.blob;
    if (!blob.IsType<Tensor>()) [[unlikely]]
      return false;
    const Tensor& tensor = blob.Get<Tensor>();
    const StorageBlock* found = tensor.storage().get();
    if (place.storage) return found == place.storage && tensor.byte_offset() == place.offset;
    return found != only_arena_ && !several_arenas_ && !place.apart;
  }
  bool IsArena(const StorageBlock* storage) const {
    for (const Storage& arena : arenas_)
      if (arena.get() == storage) return true;
    return false;
  }
  // The operator left its output elsewhere: as a view of an input, or because it could not write
  // where it should. Where there is room for it, the value goes to its place, so that it outlives
  // the input and the next run writes to no memory but ours.
  OPKIT_COLD void MoveOut(const Step& step, const Place& place) {
    Blob& blob = *place.blob;
    if (!blob.IsType<Tensor>()) return;
    Tensor& tensor = *blob.GetMutable<Tensor>();
    const bool in_arena = IsArena(tensor.storage().get());
    if (!tensor.initialized()) return;
    const bool shared = place.apart && SharesInput(step, place);
    if (!in_arena && !place.storage && !shared) return;
    if (step.asynchronous || !IsHostAccessible(tensor.device().type)) {
      if (!in_arena && !shared) return;
      Throw(ErrorCode::kUnsupported, "operator ", ToString(step.op->def()), " made '", blob.name(),
            "' a view of an input while its device still works; declare the pair in place, or "
            "copy");
    }
    Tensor moved;
    if (place.storage && tensor.nbytes() <= PlannedBytes(place.value))
      moved = Tensor(ArenaOf(place.storage), place.offset, tensor.shape(), tensor.dtype());
    else if (!in_arena && !shared)
      return;
    moved.CopyFrom(tensor);
    tensor = std::move(moved);
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
  Storage ArenaOf(const StorageBlock* storage) const {
    for (const Storage& arena : arenas_)
      if (arena.get() == storage) return arena;
    return {};
  }
  int64_t PlannedBytes(int value) const {
    const TensorInfo& info = specialization_->types()[value];
    return Tensor::CheckedBytes(info.shape.ToShape(), info.dtype);
  }

  void MakeSteps() {
    const Schedule& schedule = specialization_->schedule();
    std::vector<char> rewritten(static_cast<size_t>(view_.num_values()), 0);
    for (const auto& rewrite : view_.rewrites()) rewritten[static_cast<size_t>(rewrite.value)] = 1;
    for (int i = 0; i < schedule.size(); ++i) {
      const int node = schedule.original_of(i);
      bool reads_rewritten = false;
      for (int value : view_.inputs(node))
        reads_rewritten |= value >= 0 && rewritten[static_cast<size_t>(value)] != 0;
      Step& step = steps_.emplace_back();
      step.op = &nodes_->op(node);
      step.stream = specialization_->stream(node);
      step.asynchronous = specialization_->IsAsynchronous(node);
      step.first_place = static_cast<int>(places_.size());
      for (int value : view_.outputs(node))
        if (value >= 0)
          places_.push_back({&nodes_->blob(value), nullptr, nullptr, 0, value,
                             reads_rewritten || rewritten[static_cast<size_t>(value)] != 0});
      step.end_place = static_cast<int>(places_.size());
    }
    places_.push_back({});  // what a step without outputs looks ahead at
    MakeWaits();
    if (specialization_->may_pend()) flights_.resize(steps_.size());
  }
  // The early edges between streams: their target waits for the event on the device.
  void MakeWaits() {
    const Schedule& schedule = specialization_->schedule();
    // A list for each target, with the first source in front.
    std::vector<int> from, next, head(steps_.size(), -1);
    for (int i = schedule.size() - 1; i >= 0; --i)
      for (int at = schedule.entry_begin()[static_cast<size_t>(i)];
           at < schedule.entry_begin()[static_cast<size_t>(i) + 1]; ++at) {
        const int entry = schedule.entries()[static_cast<size_t>(at)];
        if (!Schedule::IsEarly(entry) || specialization_->IsOrderAlone(i, entry)) continue;
        next.push_back(std::exchange(head[static_cast<size_t>(Schedule::TargetOf(entry))],
                                     static_cast<int>(from.size())));
        from.push_back(i);
      }
    for (int i = 0; i < schedule.size(); ++i) {
      Step& step = steps_[static_cast<size_t>(i)];
      step.first_wait = static_cast<int>(waits_.size());
      if (step.asynchronous)
        for (auto e = head[static_cast<size_t>(i)]; e >= 0; e = next[static_cast<size_t>(e)])
          waits_.push_back(steps_[static_cast<size_t>(from[static_cast<size_t>(e)])].op);
      step.end_wait = static_cast<int>(waits_.size());
    }
  }
  // New arenas, and every planned value and scratch in its place.
  void AllocateArenas() {
    arenas_.clear();
    for (const auto& arena : specialization_->arenas()) arenas_.push_back(NewArena(arena));
    several_arenas_ = arenas_.size() > 1;
    only_arena_ = arenas_.size() == 1 ? arenas_[0].get() : nullptr;
    for (size_t a = 0; a < arenas_.size(); ++a)
      if (arenas_[a]) FillArena(specialization_->arenas()[a], arenas_[a]);
  }
  Storage NewArena(const ArenaPlan<Parts>& arena) const {
    try {
      if (arena.plan.arena_bytes == 0) return {};
      return AllocateStorage(arena.device, arena.plan.arena_bytes);
    } catch (Error& error) {
      error.AddContext(specialization_->LargestIn(arena));
      throw;
    }
  }
  void FillArena(const ArenaPlan<Parts>& arena, const Storage& storage) {
    for (size_t at = 0; at + 1 < places_.size(); ++at) {
      Place& place = places_[at];
      const auto value = static_cast<size_t>(place.value);
      const int64_t offset = arena.OffsetOf(value);
      if (offset < 0 || arena.values[value].bytes == 0) continue;
      if (view_.producer(place.value) < 0) continue;
      const TensorInfo& info = specialization_->types()[place.value];
      Blob& blob = *place.blob;
      *blob.GetMutable<Tensor>() = Tensor(storage, offset, info.shape.ToShape(), info.dtype);
      place.tensor = blob.GetMutable<Tensor>();
      place.storage = storage.get();
      place.offset = offset;
    }
    for (size_t step = 0; step < steps_.size(); ++step) {
      const size_t value = static_cast<size_t>(view_.num_values()) + step;
      const int64_t offset = arena.OffsetOf(value);
      if (offset >= 0 && arena.values[value].bytes > 0)
        steps_[step].op->SetScratch(static_cast<char*>(storage->data()) + offset,
                                    arena.values[value].bytes, storage);
    }
  }

  const GraphView& view_;
  IntrusivePtr<Specialization> specialization_;
  std::unique_ptr<BoundNodes> nodes_;
  std::vector<Step> steps_;
  std::vector<Place> places_;         // of the steps' outputs
  std::vector<OperatorBase*> waits_;  // of the steps
  std::vector<Storage> arenas_;
  const StorageBlock* only_arena_ = nullptr;
  bool several_arenas_ = false;
  bool settled_ = false;
  std::atomic<bool> cancelled_{false};
  std::atomic<int> runs_{0};
  Mutex flight_mutex_;
  std::vector<std::optional<Event>> flights_;  // by step; empty unless it is pending
  Replay<Body> replay_;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_PLAN_BOUND_PLAN_HPP_
