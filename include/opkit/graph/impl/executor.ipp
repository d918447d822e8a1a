// The executor's definitions. A run claims the executor, puts the caller's tensors into the blobs
// of the bound plan for their shapes, runs that plan, and copies outputs to the bound tensors where
// an operator left them elsewhere.
#ifndef OPKIT_GRAPH_IMPL_EXECUTOR_IPP_
#define OPKIT_GRAPH_IMPL_EXECUTOR_IPP_

#include "opkit/device/copy.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/graph/plan/bound_plan.hpp"
#include "opkit/graph/plan/impl/tensor_bindings.ipp"
#include "opkit/graph/plan/plan_state.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE void NamedTensors::Add(const std::string& name, const Tensor& tensor) {
  items_.push_back({name, tensor});
}
OPKIT_INLINE const Tensor* NamedTensors::Find(std::string_view name) const {
  for (const NamedTensor& item : items_)
    if (item.name == name) return &item.tensor;
  return nullptr;
}
OPKIT_INLINE const Tensor& NamedTensors::operator[](size_t position) const {
  if (position < items_.size()) return items_[position].tensor;
  Throw(ErrorCode::kOutOfRange, "there is no output ", position, ": the graph has ", items_.size(),
        " outputs");
}
OPKIT_INLINE const Tensor& NamedTensors::Get(std::string_view name) const {
  if (const Tensor* found = Find(name)) return *found;
  std::vector<std::string> names;
  for (const NamedTensor& item : items_) names.push_back(item.name);
  Throw(ErrorCode::kNotFound, "there is no output '", name, "'", SuggestName(name, names));
}

// The state of an executor: bindings, bound plans for the shapes met, and the run in progress.
class Executor::Impl {
 public:
  Impl(Executor& self, Plan plan)
      : self_(self),
        plan_(std::move(plan)),
        bindings_(view(), state().donated(), state().defaults(),
                  state().options().cluster.communicator.get()),
        bound_plans_(state().options().max_shapes) {
    if (state().inputs_known()) OnAllProcesses([this] { Select(state().inputs()); });
  }
  ~Impl() {
    if (run_state_ != RunState::kRunningAsync) return;
    Cancel();
    // Wait for the run, not for its event, which may have been cancelled long before.
    while (run_state_ == RunState::kRunningAsync) sched_yield();
  }

  const Plan& plan() const { return plan_; }

  NamedTensors Run(const std::vector<NamedTensor>& inputs, Timeout timeout) {
    Claim claim(*this);
    return OnAllProcesses([&] {
      claim.BeginOnProcesses(true);
      const GivenInputs given(*this, inputs);
      RunClaimed(timeout);
      return Values();
    });
  }
  void Run(Timeout timeout) {
    Claim claim(*this);
    OnAllProcesses([&] {
      claim.BeginOnProcesses(true);
      RunClaimed(timeout);
    });
  }
  Event RunAsync() {
    Claim claim(*this);
    OnAllProcesses([&] {
      claim.BeginOnProcesses(false);
      Prepare();
    });
    if (event_.IsFinished()) event_.Reset();
    event_.SetScheduled();
    claim.Keep();
    run_state_ = RunState::kRunningAsync;
    const detail::DenormalScope denormals(FlushesDenormals());
    const InvocationScope scope(Invocation::Kind::kRun, RunNames);
    if (scope.is_recorded()) event_.state()->SetSpan(CurrentInvocation().id);
    RecordOnProcesses(scope);
    self_.StartAllObservers();
    current_->RunAsync([this](std::exception_ptr error) { Finish(std::move(error)); });
    return event_;
  }
  void Cancel() {
    const Plan plan = plan_;  // the run's completion callback may destroy this executor meanwhile
    detail::IntrusivePtr<detail::BoundPlan> current;
    {
      detail::MutexLock lock(current_mutex_);
      current = current_;
    }
    if (current) current->Cancel();
  }

  void Bind(std::string_view name, Tensor tensor) {
    CheckIdle();
    const bool unbind = tensor.dtype() == DType::kUndefined;
    if (Input* input = bindings_.FindInput(name)) {
      if (!unbind) bindings_.Check(*input, tensor);
      input->tensor = unbind ? bindings_.DefaultOf(*input) : std::move(tensor);
    } else if (Output* output = bindings_.FindOutput(name)) {
      if (!unbind) {
        bindings_.Check(*output, tensor);
        if (state().inputs_known()) bindings_.CheckType(*output, TypeOf(*output), tensor);
      }
      output->bound = std::move(tensor);
    } else {
      bindings_.ThrowUnknown(name);
    }
    changed_ = true;
  }
  NamedTensors outputs() const {
    CheckIdle();
    return Values();
  }
  const Tensor& output(std::string_view name) const {
    CheckIdle();
    for (const Output& output : bindings_.outputs())
      if (bindings_.name(output) == name) return Value(output);
    bindings_.ThrowUnknown(name);
  }

  detail::BoundPlan& bound() {
    if (!current_)
      Throw(ErrorCode::kFailedPrecondition,
            "the executor has no operators before its first run, which makes them for its shapes");
    current_->MayBeObserved();
    return *current_;
  }
  OperatorBase& op(int node) {
    plan_.graph().node(node);  // throws kOutOfRange for an index that the graph does not have
    bound();
    if (is_asked_for_.empty()) is_asked_for_.assign(detail::Index(plan_.graph().num_nodes()), 0);
    if (!std::exchange(is_asked_for_[node], 1)) asked_for_.push_back(node);
    return current_->op(node);
  }
  std::string ExplainMode() const {
    return current_ ? current_->ExplainMode() : "not known before the first run";
  }

 private:
  using Input = detail::TensorBindings::Input;
  using Output = detail::TensorBindings::Output;
  enum class RunState : char { kIdle, kRunning, kRunningAsync };

  // Reserves the executor for one run, and the plan if it communicates; the destructor releases
  // them, except after Keep.
  class Claim {
   public:
    explicit Claim(Impl& self) : self_(&self) {
      RunState idle = RunState::kIdle;
      if (!self.run_state_.compare_exchange_strong(idle, RunState::kRunning)) [[unlikely]]
        ThrowRunning();
    }
    ~Claim() {
      if (link_) link_->EndRun();
      if (self_) self_->run_state_ = RunState::kIdle;
    }
    void BeginOnProcesses(bool waits) {
      detail::ProcessLink* const link = self_->link();
      if (!link) return;
      link->BeginRun(waits);
      link_ = link;
    }
    void Keep() {
      self_ = nullptr;
      link_ = nullptr;
    }

   private:
    Impl* self_;
    detail::ProcessLink* link_ = nullptr;
  };

  // Sets inputs for one run and puts the bound ones back after it.
  class GivenInputs {
   public:
    GivenInputs(Impl& self, const std::vector<NamedTensor>& inputs) : self_(self) {
      detail::TensorBindings& bindings = self.bindings_;
      for (size_t i = 0; i < inputs.size(); ++i) {
        const NamedTensor& given = inputs[i];
        Input* input = bindings.FindInput(given.name);
        if (!input) bindings.ThrowUnknown(given.name);
        bindings.Check(*input, given.tensor);
        for (size_t k = 0; k < i; ++k)
          if (inputs[k].name == given.name)
            Throw(ErrorCode::kInvalidArgument, "input '", given.name, "' is given twice");
      }
      for (const Input& input : bindings.inputs()) before_.push_back(input.tensor);
      for (const NamedTensor& given : inputs) bindings.FindInput(given.name)->tensor = given.tensor;
      self.changed_ = true;
    }
    ~GivenInputs() {
      for (size_t i = 0; i < before_.size(); ++i) {
        Input& input = self_.bindings_.inputs()[i];
        input.tensor = std::move(before_[i]);
        if (self_.current_) self_.TensorOf(input.value) = input.tensor;
        if (self_.current_ && input.donated) self_.current_->SetDonated(input.value, Tensor());
      }
      self_.changed_ = true;
    }

   private:
    Impl& self_;
    std::vector<Tensor> before_;
  };

  detail::PlanState& state() const { return *plan_.state(); }
  // Returns the plan's communicator; null if one process runs the plan.
  detail::ProcessLink* link() const { return state().options().cluster.communicator.get(); }
  const GraphView& view() const { return state().view(); }
  Blob& BlobOf(int value) const { return current_->blob(value); }
  Tensor& TensorOf(int value) const { return *BlobOf(value).GetMutable<Tensor>(); }
  // Returns the tensor that the run made for an output. Returns null if the output is itself an
  // input or a constant, or if the operator left no tensor.
  Tensor* Made(const Output& output) const {
    if (view().producer(output.value) < 0) return nullptr;
    Blob& blob = BlobOf(output.value);
    return blob.IsType<Tensor>() ? blob.GetMutable<Tensor>() : nullptr;
  }
  const TensorInfo& TypeOf(const Output& output) const {
    const detail::Specialization& found = current_->specialization();
    return found.types()[found.ValueOf(output.value)];
  }
  void CheckIdle() const {
    if (run_state_ != RunState::kIdle) ThrowRunning();
  }
  [[noreturn]] OPKIT_COLD static void ThrowRunning() {
    Throw(ErrorCode::kFailedPrecondition,
          "the executor is running, and runs once at a time: give each thread an executor of its "
          "own; after RunAsync, wait until its event is finished (an event that the caller "
          "cancelled is finished before the run is)");
  }

  // True if runs take denormal numbers as zeros: this plan asks for it, or the run around this one.
  bool FlushesDenormals() const {
    return state().options().schedule.flush_denormals || CurrentInvocation().flushes_denormals;
  }
  static detail::SpanNames RunNames() { return {InternName("Executor::Run")}; }
  // Records the number of the run, by which the profiles of all processes are joined.
  void RecordOnProcesses(const InvocationScope& scope) const {
    if (scope.is_recorded() && link()) link()->RecordRun(CurrentInvocation().id);
  }
  void RunClaimed(Timeout timeout) {
    Prepare();
    const detail::DenormalScope denormals(FlushesDenormals());
    const InvocationScope scope(Invocation::Kind::kRun, RunNames);
    RecordOnProcesses(scope);
    detail::ObserverScope<Executor> observers(self_);
    try {
      current_->Run(timeout);
    } catch (...) {
      changed_ = true;  // the bound tensors may have left their blobs
      throw;
    }
    FinalizeOutputs();
    has_outputs_ = true;
    observers.Succeeded();
  }
  // Returns f(). If it throws, ends the run on the other processes of the plan too: they would wait
  // for this one.
  template <class F>
  auto OnAllProcesses(F&& f) const -> decltype(f()) {
    try {
      return f();
    } catch (...) {
      std::rethrow_exception(TellOtherProcesses(std::current_exception()));
    }
  }
  // Returns the Error for the caller.
  std::exception_ptr TellOtherProcesses(const std::exception_ptr& error) const noexcept {
    return link() ? link()->RunFailed(error) : error;
  }
  // Ends a run of RunAsync and completes its event.
  void Finish(std::exception_ptr error) {
    const detail::DenormalScope denormals(false);  // for callbacks of the event
    try {
      if (error) {
        changed_ = true;
        current_->Clean();
      } else {
        current_->Succeeded();
        FinalizeOutputs();
        has_outputs_ = true;
      }
    } catch (...) {
      changed_ = true;
      if (!error) error = std::current_exception();
    }
    self_.StopAllObservers(!error);
    if (error) error = TellOtherProcesses(error);
    if (detail::ProcessLink* const other = link()) other->EndRun();
    const Event event = event_;
    run_state_ = RunState::kIdle;  // from here on another thread may destroy this executor
    event.state()->Complete(std::move(error));
  }

  void Prepare() {
    has_outputs_ = false;
    if (const int selections = state().selections(); selections != selections_) [[unlikely]] {
      selections_ = selections;
      bound_plans_.Clear();
      is_stale_ = changed_ = true;
    }
    if (changed_) [[unlikely]]
      Rebind();
    for (Input& input : bindings_.inputs())
      if (!input.tensor.is_dense()) [[unlikely]]
        Densify(input);
    for (const Output& output : bindings_.outputs()) {
      Tensor* tensor = Made(output);
      // A caller still holds the last result: make this run write to other memory.
      if (tensor && !output.lent && !output.donated && tensor->storage().use_count() > 1)
        *tensor = Tensor(tensor->device());
    }
  }
  // Selects operators for the inputs' shapes and puts the caller's tensors into their blobs.
  OPKIT_COLD void Rebind() {
    const std::vector<TensorInfo> infos = bindings_.InputTypes();
    bindings_.CheckOverlaps();
    Select(infos);
    for (const Output& output : bindings_.outputs())
      if (output.is_bound()) bindings_.CheckType(output, TypeOf(output), output.bound);
    for (Input& input : bindings_.inputs())
      if (input.tensor.is_dense()) {
        TensorOf(input.value) = input.tensor;
        input.dense = Tensor();
      }
    for (Output& output : bindings_.outputs()) {
      if (view().producer(output.value) < 0) continue;
      // An output bound to an input's memory is copied there after the run: operators may read the
      // input until then.
      const bool lend = output.is_bound() && !bindings_.IsInputMemory(output.bound);
      if (lend)
        TensorOf(output.value) = output.bound;
      else if (output.lent)
        TakeBack(output);
      output.lent = lend;
    }
    for (const Input& input : bindings_.inputs())
      if (input.donated && input.tensor.is_dense()) Donate(input, input.tensor);
    changed_ = false;
  }
  OPKIT_COLD void Densify(Input& input) {
    // Releases our handles of the last copy, so that use_count() below counts only the caller's:
    // the copy may be an output, or an output may be a view of it.
    TensorOf(input.value) = Tensor();
    if (input.donated) current_->SetDonated(input.value, Tensor());
    if (input.dense.storage().use_count() > 1) input.dense = Tensor();
    input.dense.CopyFrom(input.tensor);
    TensorOf(input.value) = input.dense;
    if (input.donated) Donate(input, input.dense);
  }
  // Lets the run write to an input's memory. An output that the caller bound to other memory does
  // not move to the input's memory.
  void Donate(const Input& input, const Tensor& tensor) {
    current_->SetDonated(input.value, tensor);
    const detail::Specialization& found = current_->specialization();
    for (Output& output : bindings_.outputs()) {
      const bool is_planned = found.memory().IsDonated(found.ValueOf(output.value));
      output.donated = is_planned && !output.is_bound();
      if (!is_planned || !output.is_bound()) continue;
      Tensor& made = TensorOf(output.value);
      if (made.raw_data() == output.bound.raw_data()) continue;  // bound to the input's memory
      current_->DetachFromDonated(output.value);
      made = output.lent ? output.bound : Tensor(made.device());
    }
  }
  // Removes the caller's tensor, or the last result, from the blob of an output.
  void TakeBack(Output& output) {
    Tensor& tensor = TensorOf(output.value);
    tensor = Tensor(tensor.device());
    output.lent = false;
  }
  // Makes the bound plan for these inputs the current one.
  void Select(const std::vector<TensorInfo>& infos) {
    if (current_ && !is_stale_ && detail::SameTypes(current_->inputs(), infos))
      return UseArenas(*current_);
    detail::MutexLock lock(current_mutex_);
    detail::IntrusivePtr<detail::BoundPlan> found = bound_plans_.Find(infos), made;
    if (found)
      state().SetLatest(found->shared_specialization());
    else
      found = made = BindPlan(infos);
    ReleaseTensors();
    UseArenas(*found);
    for (int node : asked_for_) found->op(node).TakeObservers(current_->op(node));
    if (!asked_for_.empty()) found->MayBeObserved();
    current_ = std::move(found);
    if (made) bound_plans_.Add(std::move(made));
    is_stale_ = false;
  }
  void UseArenas(detail::BoundPlan& plan) {
    // If an arena must grow, all kept plans first release their arenas to free the memory.
    if (plan.NeedsLargerArenas(arenas_))
      bound_plans_.ForEach([](detail::BoundPlan& other) { other.ReleaseArenas(); });
    plan.UseArenas(arenas_);
  }
  detail::IntrusivePtr<detail::BoundPlan> BindPlan(const std::vector<TensorInfo>& infos) const {
    std::unique_ptr<detail::BoundNodes> nodes;
    auto specialization = state().Specialize(infos, &nodes);
    ReplayOptions replay;
    replay.mode = state().options().schedule.mode;
    replay.may_pend = specialization->may_pend();
    // The memory plan holds only for steps that run one after the other, and the pool has got more
    // threads since the plan was made.
    if (replay.mode == ReplayMode::kAuto && !specialization->memory().run_order().stages.empty() &&
        state().pool().threads() > 1)
      replay.mode = ReplayMode::kWalk;
    return detail::MakeIntrusive<detail::BoundPlan>(std::move(specialization), std::move(nodes),
                                                    state().pool(), replay,
                                                    state().options().schedule.capture);
  }
  // Releases the caller's tensors and the last results before switching plans.
  void ReleaseTensors() {
    if (!current_) return;
    for (const Input& input : bindings_.inputs()) {
      TensorOf(input.value) = Tensor();
      if (input.donated) current_->SetDonated(input.value, Tensor());
    }
    for (Output& output : bindings_.outputs())
      if (Made(output)) TakeBack(output);
  }

  // Copies outputs, and inputs that the graph rewrites, to the caller's tensors if an operator left
  // them in other memory.
  void FinalizeOutputs() {
    for (const Input& input : bindings_.inputs())
      if (input.rewritten) WriteBack(input);
    bool over_inputs = false;
    for (const Output& output : bindings_.outputs()) {
      Tensor* tensor = Made(output);
      if (!tensor) continue;
      if (output.is_bound() && !output.lent) [[unlikely]] {
        over_inputs = true;
      } else if (output.is_bound()) {
        if (!IsWhereBound(output, *tensor)) [[unlikely]]
          CopyToBound(output, *tensor);
      } else if (!output.donated && tensor->storage().use_count() > 1) [[unlikely]] {
        *tensor = Detached(*tensor);  // a view of an input, a constant or another output
      }
    }
    if (over_inputs) [[unlikely]]
      CopyOverInputs();
  }
  // Copies outputs into bound tensors that share memory with inputs. First copies other outputs
  // away from that memory: views of an input, or outputs in a donated input.
  OPKIT_COLD void CopyOverInputs() {
    const auto is_overwritten = [&](const Tensor& tensor) {
      for (const Output& output : bindings_.outputs())
        if (output.is_bound() && !output.lent && output.bound.SharesMemoryWith(tensor)) return true;
      return false;
    };
    const auto is_there = [](const Output& output, const Tensor& made) {
      return output.is_bound() && IsWhereBound(output, made);
    };
    for (Output& output : bindings_.outputs()) {
      Tensor* const made = Made(output);
      if (!made || is_there(output, *made) || !is_overwritten(*made)) continue;
      *made = Detached(*made);
      output.donated = false;
    }
    for (const Output& output : bindings_.outputs())
      if (Tensor* const made = Made(output);
          made && output.is_bound() && !output.lent && !is_there(output, *made))
        CopyToBound(output, *made);
  }
  // True if the elements lie in the bound tensor in its order. A strided view has another order.
  static bool IsWhereBound(const Output& output, const Tensor& tensor) {
    return tensor.raw_data() == output.bound.raw_data() && tensor.dtype() == output.bound.dtype() &&
           tensor.shape() == output.bound.shape() && tensor.is_dense();
  }
  OPKIT_COLD void CopyToBound(const Output& output, Tensor& tensor) const {
    if (tensor.SharesMemoryWith(output.bound)) tensor = Detached(tensor);
    CopyBack(tensor, output.bound, "output", bindings_.name(output), "' came out as ",
             ", but the tensor bound to it is ");
    if (output.lent) tensor = output.bound;
  }
  void WriteBack(const Input& input) const {
    Tensor& tensor = TensorOf(input.value);
    if (tensor.raw_data() == input.tensor.raw_data()) return;
    CopyBack(tensor, input.tensor, "input", bindings_.name(input),
             "' of the graph was rewritten as ", ", but the tensor given is ");
    tensor = input.tensor;
  }
  OPKIT_COLD static void CopyBack(const Tensor& tensor, Tensor target, const char* what,
                                  const std::string& name, const char* was, const char* is) {
    if (tensor.dtype() != target.dtype() || tensor.shape() != target.shape())
      Throw(ErrorCode::kInvalidArgument, what, " '", name, was, tensor, is, target);
    Copy(tensor, &target);
  }
  OPKIT_COLD static Tensor Detached(const Tensor& tensor) {
    Tensor own(tensor.device());
    Copy(tensor, &own);
    return own;
  }

  NamedTensors Values() const {
    NamedTensors out;
    for (const Output& output : bindings_.outputs()) out.Add(bindings_.name(output), Value(output));
    return out;
  }
  const Tensor& Value(const Output& output) const {
    if (!has_outputs_)
      Throw(ErrorCode::kFailedPrecondition, "output '", bindings_.name(output), "' has no value: ",
            current_ ? "no run has succeeded since the executor was made or a run failed"
                     : "the executor has not run yet",
            "; run first");
    return std::as_const(BlobOf(output.value)).Get<Tensor>();
  }

  Executor& self_;
  Plan plan_;
  detail::TensorBindings bindings_;
  bool has_outputs_ = false;  // the last run succeeded
  bool changed_ = true;       // the blobs may not have the bound tensors
  detail::SharedArenas arenas_;
  detail::ShapeCache<detail::BoundPlan> bound_plans_;
  detail::IntrusivePtr<detail::BoundPlan> current_;
  int selections_ = 0;           // of PlanState::selections(), as the bound plans have them
  bool is_stale_ = false;        // `current_` has kernels of an earlier selection
  detail::Mutex current_mutex_;  // guards `current_`, which Cancel reads from any thread
  std::vector<int> asked_for_;   // nodes whose operators may have observers
  detail::IndexedVector<char> is_asked_for_;  // by node
  Event event_;
  std::atomic<RunState> run_state_{RunState::kIdle};
};

OPKIT_INLINE Executor::Executor(Plan plan) : impl_(new Impl(*this, std::move(plan))) {}
OPKIT_INLINE Executor::~Executor() { delete impl_; }

OPKIT_INLINE const Plan& Executor::plan() const { return impl_->plan(); }
OPKIT_INLINE NamedTensors Executor::Run(const std::vector<NamedTensor>& inputs, Timeout timeout) {
  return impl_->Run(inputs, timeout);
}
OPKIT_INLINE void Executor::Run(Timeout timeout) { impl_->Run(timeout); }
OPKIT_INLINE Event Executor::RunAsync() { return impl_->RunAsync(); }
OPKIT_INLINE void Executor::Cancel() { impl_->Cancel(); }
OPKIT_INLINE void Executor::Bind(std::string_view name, Tensor tensor) {
  impl_->Bind(name, std::move(tensor));
}
OPKIT_INLINE NamedTensors Executor::outputs() const { return impl_->outputs(); }
OPKIT_INLINE const Tensor& Executor::output(std::string_view name) const {
  return impl_->output(name);
}
OPKIT_INLINE detail::BoundPlan& Executor::bound() { return impl_->bound(); }
OPKIT_INLINE OperatorBase& Executor::op(int node) { return impl_->op(node); }
OPKIT_INLINE std::string Executor::ExplainMode() const { return impl_->ExplainMode(); }

}}  // namespace opkit

#endif  // OPKIT_GRAPH_IMPL_EXECUTOR_IPP_
