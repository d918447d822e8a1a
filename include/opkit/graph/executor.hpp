// Executor: runs a plan. It owns what a run writes to: operators, tensors, an arena; so that many
// executors of one plan run at once.
#ifndef OPKIT_GRAPH_EXECUTOR_HPP_
#define OPKIT_GRAPH_EXECUTOR_HPP_

#include "opkit/device/copy.hpp"
#include "opkit/graph/plan.hpp"
#include "opkit/graph/plan/bound_plan.hpp"

namespace opkit::inline OPKIT_ABI {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// Tensors by name, in the order of the graph's outputs.
template <class NamedTensor>
class BasicNamedTensors {
 public:
  // Error (kNotFound) that names the nearest.
  const Tensor& at(std::string_view name) const {
    std::vector<std::string> names;
    for (const NamedTensor& item : items_) {
      if (item.name == name) return item.tensor;
      names.push_back(item.name);
    }
    Throw(ErrorCode::kNotFound, "there is no output '", name, "'", SuggestName(name, names));
  }
  void Add(const std::string& name, const Tensor& tensor) { items_.push_back({name, tensor}); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  size_t size() const { return items_.size(); }

 private:
  std::vector<NamedTensor> items_;
};
using NamedTensors = BasicNamedTensors<NamedTensor>;

// One run at a time; different executors of one plan may run at once. What Run returns is the
// caller's: later runs write to other memory while somebody holds it. A dense input is read where
// it is, one with strides is copied first; a bound output is written where it is.
//
//   Executor exec(plan);
//   auto out = exec.Run({{"X", x}});
//   out.at("Y");
//
//   exec.Bind("X", x);                   // for hot loops: nothing is allocated
//   exec.Bind("Y", y);
//   for (…) exec.Run();
//
// Shapes other than those of the last run are planned once and kept (PlanOptions::max_shapes).
template <class Plan, class NamedTensor>
class BasicExecutor : public Observable<BasicExecutor<Plan, NamedTensor>> {
  using NamedTensors = BasicNamedTensors<NamedTensor>;

 public:
  explicit BasicExecutor(Plan plan);
  BasicExecutor(const BasicExecutor&) = delete;
  BasicExecutor& operator=(const BasicExecutor&) = delete;
  // Cancels a run in flight, and returns when no operator is running.
  ~BasicExecutor();

  const Plan& plan() const { return plan_; }

  // Runs with these inputs, besides those that are bound. Errors: kNotFound for a name that is no
  // input; kInvalidArgument, kTypeMismatch for a tensor that is not what the graph says, or an
  // input that nothing was given for; kDeadlineExceeded after `timeout` and kCancelled, when
  // operators that run have returned and no other is called; what the operator that failed first
  // threw.
  NamedTensors Run(const std::vector<NamedTensor>& inputs, Timeout timeout = {});
  NamedTensors Run(std::initializer_list<NamedTensor> inputs, Timeout timeout = {}) {
    return Run(std::vector<NamedTensor>(inputs), timeout);
  }
  // Runs with what is bound.
  void Run(Timeout timeout = {});
  // Starts a run with what is bound and returns. The event completes with it; outputs() are there
  // then. Errors: as Run for what is wrong before anything has run. There is no deadline, which
  // nobody would watch: the event can be waited for with one, and Cancel ends the run. Where the
  // plan has a pool of its own, a callback of the event must not end the last executor of the plan.
  Event RunAsync();
  // From any thread. A run in progress ends with kCancelled: what has not begun is skipped, what a
  // device does still goes on in memory of its own.
  void Cancel();

  // The tensor that runs read input `name` from, or write output `name` to, from now on; a
  // default-constructed one unbinds. Errors: kNotFound; kInvalidArgument, kTypeMismatch as for Run.
  void Bind(std::string_view name, Tensor tensor);
  // Of the last run. Error (kFailedPrecondition) before one, during one, and after one that failed.
  NamedTensors outputs() const;
  // One of them. Errors: kNotFound, and as outputs().
  const Tensor& output(std::string_view name) const;

  // The operator of a node of plan().graph(), for observers. It is another one after a run with
  // other input shapes.
  OperatorBase& op(int node);
  // How nodes are run, and why.
  std::string ExplainMode() const;

 private:
  using BoundPlan = detail::BoundPlan<typename Plan::Parts>;
  struct Input {
    int value;
    Tensor tensor;
    Tensor dense;  // a copy, where the tensor has strides
    bool bound;
    bool rewritten;
  };
  struct Output {
    int value;
    Tensor bound;
    bool lent;  // the operators write to what is bound; else it is copied there
  };
  enum class State : char { kIdle, kRunning, kRunningAsync };

  // The executor, for one run.
  class Claim {
   public:
    explicit Claim(BasicExecutor& self) : self_(&self) {
      State idle = State::kIdle;
      if (!self.state_.compare_exchange_strong(idle, State::kRunning)) [[unlikely]]
        ThrowRunning();
    }
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;
    ~Claim() {
      if (self_) self_->state_ = State::kIdle;
    }
    void Keep() { self_ = nullptr; }

   private:
    BasicExecutor* self_;
  };

  // Inputs for one run.
  class Given {
   public:
    Given(BasicExecutor& self, const std::vector<NamedTensor>& inputs) : self_(self) {
      for (size_t i = 0; i < inputs.size(); ++i) {
        const NamedTensor& given = inputs[i];
        Input* input = self.FindInput(given.name);
        if (!input) self.ThrowUnknown(given.name);
        self.CheckInput(*input, given.tensor);
        for (size_t k = 0; k < i; ++k)
          if (inputs[k].name == given.name)
            Throw(ErrorCode::kInvalidArgument, "input '", given.name, "' is given twice");
      }
      for (const Input& input : self.inputs_) before_.push_back(input.tensor);
      for (const NamedTensor& given : inputs) self.FindInput(given.name)->tensor = given.tensor;
      self.changed_ = true;
    }
    ~Given() {
      for (size_t i = 0; i < before_.size(); ++i) {
        Input& input = self_.inputs_[i];
        input.tensor = std::move(before_[i]);
        if (self_.current_) self_.TensorOf(input.value) = input.tensor;
      }
      self_.changed_ = true;
    }

   private:
    BasicExecutor& self_;
    std::vector<Tensor> before_;
  };

  const auto& view() const { return plan_.state()->view(); }
  ::opkit::Blob& Blob(int value) const { return current_->blob(value); }
  Tensor& TensorOf(int value) const {
    ::opkit::Blob& blob = Blob(value);
    return *blob.GetMutable<Tensor>();
  }
  Input* FindInput(std::string_view name) {
    for (Input& input : inputs_)
      if (view().name(input.value) == name) return &input;
    return nullptr;
  }
  [[noreturn]] OPKIT_COLD void ThrowUnknown(std::string_view name) const {
    std::vector<std::string> names;
    for (const Input& input : inputs_) names.push_back(view().name(input.value));
    for (const Output& output : outputs_) names.push_back(view().name(output.value));
    Throw(ErrorCode::kNotFound, "the graph has no input or output '", name, "'",
          SuggestName(name, names));
  }
  void CheckIdle() const {
    if (state_ != State::kIdle) ThrowRunning();
  }
  [[noreturn]] OPKIT_COLD static void ThrowRunning() {
    Throw(ErrorCode::kFailedPrecondition,
          "the executor is running: finish the event of RunAsync first (one that was cancelled "
          "by its own handle is finished before the run is), or use another executor of the "
          "plan");
  }
  void CheckInput(const Input& input, const Tensor& tensor) const {
    const std::string& name = view().name(input.value);
    const TensorInfo& info = view().graph().FindInput(name)->info;
    if (!tensor.initialized())
      Throw(ErrorCode::kUninitialized, "the tensor given for input '", name, "' has no data");
    const bool dtype_differs = info.dtype != DType::kUndefined && info.dtype != tensor.dtype();
    if (dtype_differs || !SymbolicShape::Merge(info.shape, tensor.shape()))
      Throw(dtype_differs ? ErrorCode::kTypeMismatch : ErrorCode::kInvalidArgument, "input '", name,
            "' of the graph is ", ToString(info), ", but the tensor given is ", tensor);
    if (MemoryDevice(tensor.device()) != MemoryDevice(info.device))
      Throw(ErrorCode::kInvalidArgument, "input '", name, "' of the graph is on ",
            ToString(info.device), ", but the tensor given is ", tensor, "; copy it there first");
    if (!tensor.layout().is_standard())
      Throw(ErrorCode::kInvalidArgument, "the tensor given for input '", name,
            "' must have the standard layout, but is ", tensor);
    if (!tensor.is_dense() &&
        (view().IsRewritten(input.value) || !IsHostAccessible(tensor.device().type)))
      Throw(ErrorCode::kInvalidArgument, "the tensor given for input '", name, "' must be dense: ",
            view().IsRewritten(input.value) ? "the graph writes to it" : "it is not on the host");
  }
  void CheckOutput(const Output& output, const Tensor& tensor) const {
    const std::string& name = view().name(output.value);
    if (!tensor.initialized() || !tensor.is_dense() || !tensor.layout().is_standard())
      Throw(ErrorCode::kInvalidArgument, "the tensor bound to output '", name,
            "' must have memory and be dense, but is ", tensor);
    if (view().producer(output.value) < 0)
      Throw(ErrorCode::kInvalidArgument, "output '", name,
            "' of the graph is an input or a constant itself, and cannot be bound");
    if (known_) CheckBound(output, tensor);
  }
  void CheckBound(const Output& output, const Tensor& tensor) const {
    const TensorInfo& info = current_->specialization().types()[output.value];
    const bool dtype_differs = info.dtype != DType::kUndefined && info.dtype != tensor.dtype();
    if (dtype_differs || !SymbolicShape::Merge(info.shape, tensor.shape()) ||
        MemoryDevice(info.device) != MemoryDevice(tensor.device()))
      Throw(dtype_differs ? ErrorCode::kTypeMismatch : ErrorCode::kInvalidArgument, "output '",
            view().name(output.value), "' of the graph is ", ToString(info), " on ",
            ToString(info.device), ", but the tensor bound to it is ", tensor);
  }

  void RunClaimed(Timeout timeout) {
    Prepare();
    ObserverScope<BasicExecutor> observers(*this);
    try {
      current_->Run(timeout);
    } catch (...) {
      changed_ = true;  // it may have let go of what was bound
      throw;
    }
    Collect();
    has_outputs_ = true;
    observers.Succeeded();
  }
  void Prepare() {
    has_outputs_ = false;
    if (changed_) [[unlikely]]
      Rebind();
    for (const Input& input : inputs_)
      if (!input.tensor.is_dense()) [[unlikely]]
        Densify(input);
    for (Output& output : outputs_) {
      ::opkit::Blob& blob = Blob(output.value);
      if (view().producer(output.value) < 0 || !blob.IsType<Tensor>()) continue;
      Tensor& tensor = *blob.GetMutable<Tensor>();
      // Somebody holds the last result.
      if (!output.lent && tensor.storage().use_count() > 1) tensor = Tensor(tensor.device());
    }
  }
  // Operators for the inputs' shapes, and their tensors in the blobs.
  OPKIT_COLD void Rebind() {
    std::vector<TensorInfo> infos;
    for (const Input& input : inputs_) {
      if (input.tensor.dtype() == DType::kUndefined)
        Throw(ErrorCode::kInvalidArgument, "nothing was given for input '",
              view().name(input.value), "' of the graph; Run({{\"", view().name(input.value),
              "\", tensor}}), or Bind it");
      infos.push_back(TensorInfo::Of(input.tensor));
      infos.back().layout = Layout();
    }
    CheckOverlaps();
    Select(infos);
    for (const Output& output : outputs_)
      if (output.bound.dtype() != DType::kUndefined) CheckBound(output, output.bound);
    for (Input& input : inputs_)
      if (input.tensor.is_dense()) {
        TensorOf(input.value) = input.tensor;
        input.dense = Tensor();
      }
    for (Output& output : outputs_) {
      if (view().producer(output.value) < 0) continue;
      // An input is read until the run ends, so what overlaps one is written after it.
      const bool lend = output.bound.dtype() != DType::kUndefined && !IsInputMemory(output.bound);
      if (lend) {
        TensorOf(output.value) = output.bound;
      } else if (output.lent) {
        TakeBack(output);
      }
      output.lent = lend;
    }
    changed_ = false;
  }
  void TakeBack(Output& output) {
    Tensor& tensor = TensorOf(output.value);
    tensor = Tensor(tensor.device());
    output.lent = false;
  }
  bool IsInputMemory(const Tensor& tensor) const {
    for (const Input& input : inputs_)
      if (input.tensor.SharesMemoryWith(tensor)) return true;
    return false;
  }
  // Memory that would be written while something else is read or written there.
  void CheckOverlaps() const {
    const auto share = [&](const Tensor& a, const Tensor& b, const char* what, int first,
                           int second) {
      if (a.SharesMemoryWith(b))
        Throw(ErrorCode::kInvalidArgument, what, " '", view().name(first), "' and '",
              view().name(second), "' share memory, and the graph writes to it; give each its own");
    };
    for (size_t i = 0; i < outputs_.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        share(outputs_[i].bound, outputs_[j].bound, "the tensors bound to the outputs",
              outputs_[j].value, outputs_[i].value);
    for (const Input& input : inputs_)
      for (const Input& other : inputs_)
        if (input.rewritten && &input != &other)
          share(input.tensor, other.tensor, "the tensors given for the inputs", input.value,
                other.value);
  }
  OPKIT_COLD void Densify(const Input& input) {
    Tensor& dense = const_cast<Input&>(input).dense;
    dense.CopyFrom(input.tensor);
    TensorOf(input.value) = dense;
  }
  void Select(const std::vector<TensorInfo>& infos) {
    if (current_ && Matches(*current_, infos)) return;
    detail::MutexLock lock(current_mutex_);
    for (size_t i = 0; i < bound_.size(); ++i)
      if (Matches(*bound_[i], infos)) {
        auto found = std::move(bound_[i]);
        bound_.erase(bound_.begin() + static_cast<std::ptrdiff_t>(i));
        Leave();
        bound_.insert(bound_.begin(), std::move(found));
        current_ = bound_.front().get();
        return;
      }
    const PlanOptions& options = plan_.state()->options();
    std::unique_ptr<typename Plan::State::BoundNodes> nodes;
    auto specialization = plan_.state()->Specialize(infos, &nodes);
    ReplayOptions replay;
    replay.mode = options.mode;
    replay.may_pend = specialization->may_pend();
    // Memory was planned for steps one after the other, and the pool has more threads since.
    if (replay.mode == ReplayMode::kAuto && !specialization->run_order().stages.empty() &&
        plan_.state()->pool().threads() > 1)
      replay.mode = ReplayMode::kWalk;
    auto bound = detail::MakeIntrusive<BoundPlan>(view(), std::move(specialization),
                                                  std::move(nodes), plan_.state()->pool(), replay);
    Leave();
    bound_.insert(bound_.begin(), std::move(bound));
    current_ = bound_.front().get();
    if (bound_.size() > static_cast<size_t>(options.max_shapes)) bound_.pop_back();
  }
  // The operators in use keep no memory of the caller's.
  void Leave() {
    if (!current_) return;
    for (const Input& input : inputs_) TensorOf(input.value) = Tensor();
    for (Output& output : outputs_)
      if (output.lent) TakeBack(output);
  }
  static bool Matches(const BoundPlan& bound, const std::vector<TensorInfo>& infos) {
    const std::vector<TensorInfo>& known = bound.specialization().inputs();
    for (size_t i = 0; i < infos.size(); ++i)
      if (known[i].dtype != infos[i].dtype || !(known[i].shape == infos[i].shape)) return false;
    return true;
  }

  // Outputs that an operator left elsewhere than where they belong.
  void Collect() {
    for (const Input& input : inputs_)
      if (input.rewritten) PutBack(input);
    for (const Output& output : outputs_) {
      ::opkit::Blob& blob = Blob(output.value);
      if (view().producer(output.value) < 0 || !blob.IsType<Tensor>()) continue;
      Tensor& tensor = *blob.GetMutable<Tensor>();
      if (output.bound.dtype() != DType::kUndefined) {
        if (tensor.raw_data() != output.bound.raw_data() ||
            tensor.dtype() != output.bound.dtype() || tensor.shape() != output.bound.shape())
            [[unlikely]]
          CopyToBound(output, tensor);
      } else if (tensor.storage().use_count() > 1) [[unlikely]] {
        tensor = Detached(tensor);  // a view of an input, a constant or another output
      }
    }
  }
  OPKIT_COLD void CopyToBound(const Output& output, Tensor& tensor) const {
    if (tensor.dtype() != output.bound.dtype() || tensor.shape() != output.bound.shape())
      Throw(ErrorCode::kInvalidArgument, "output '", view().name(output.value), "' came out as ",
            tensor, ", but the tensor bound to it is ", output.bound);
    Tensor target = output.bound;
    Copy(tensor, &target);
    if (output.lent) tensor = output.bound;
  }
  // What a node that rewrites an input of the graph left elsewhere.
  void PutBack(const Input& input) {
    Tensor& tensor = TensorOf(input.value);
    if (tensor.raw_data() == input.tensor.raw_data()) return;
    if (tensor.dtype() != input.tensor.dtype() || tensor.shape() != input.tensor.shape())
      Throw(ErrorCode::kInvalidArgument, "input '", view().name(input.value),
            "' of the graph was rewritten as ", tensor, ", but the tensor given is ", input.tensor);
    Tensor target = input.tensor;
    Copy(tensor, &target);
    tensor = input.tensor;
  }
  OPKIT_COLD static Tensor Detached(const Tensor& tensor) {
    Tensor own(tensor.device());
    Copy(tensor, &own);
    return own;
  }
  void Finish(std::exception_ptr error) {
    try {
      if (error) {
        changed_ = true;
        current_->Clean();
      } else {
        Collect();
        has_outputs_ = true;
      }
    } catch (...) {
      if (!error) error = std::current_exception();
    }
    this->StopAllObservers(!error);
    const Event event = event_;
    state_ = State::kIdle;
    event.state()->Complete(std::move(error));
  }
  NamedTensors Values() const {
    NamedTensors out;
    for (const Output& output : outputs_) out.Add(view().name(output.value), Value(output));
    return out;
  }
  const Tensor& Value(const Output& output) const {
    if (!has_outputs_)
      Throw(ErrorCode::kFailedPrecondition, "output '", view().name(output.value),
            "' has no value: ",
            current_ ? "no run has ended well since the executor was made or one failed"
                     : "it is asked for before the first run",
            "; run first");
    const ::opkit::Blob& blob = Blob(output.value);
    return blob.Get<Tensor>();
  }

  Plan plan_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  bool known_ = false;                                  // the graph says all shapes of its inputs
  bool has_outputs_ = false;                            // of a run that succeeded
  bool changed_ = true;                                 // since the blobs were set
  std::vector<detail::IntrusivePtr<BoundPlan>> bound_;  // the most recently used first
  BoundPlan* current_ = nullptr;
  detail::Mutex current_mutex_;  // of `current_`, for Cancel
  Event event_;
  std::atomic<State> state_{State::kIdle};
};

template <class Plan, class NamedTensor>
BasicExecutor<Plan, NamedTensor>::BasicExecutor(Plan plan) : plan_(std::move(plan)) {
  const auto& view = this->view();
  for (const auto& input : view.graph().inputs())
    inputs_.push_back({view.FindValue(input.name), {}, {}, false, false});
  for (const auto& rewrite : view.rewrites())  // inputs are the first values
    if (view.IsInput(rewrite.value)) inputs_[static_cast<size_t>(rewrite.value)].rewritten = true;
  for (int value : view.outputs()) outputs_.push_back({value, {}, false});
  known_ = true;
  for (const auto& input : view.graph().inputs())
    known_ &= input.info.dtype != DType::kUndefined && input.info.shape.is_known();
  if (known_) {
    std::vector<TensorInfo> infos;
    for (const auto& input : view.graph().inputs()) infos.push_back(input.info);
    Select(infos);
  }
}

template <class Plan, class NamedTensor>
BasicExecutor<Plan, NamedTensor>::~BasicExecutor() {
  if (state_ != State::kRunningAsync) return;
  Cancel();
  // The run, not its event: whoever holds that may have cancelled it long before.
  while (state_ == State::kRunningAsync) sched_yield();
}

template <class Plan, class NamedTensor>
BasicNamedTensors<NamedTensor> BasicExecutor<Plan, NamedTensor>::Run(
    const std::vector<NamedTensor>& inputs, Timeout timeout) {
  const Claim claim(*this);
  const Given given(*this, inputs);
  RunClaimed(timeout);
  return Values();
}

template <class Plan, class NamedTensor>
void BasicExecutor<Plan, NamedTensor>::Run(Timeout timeout) {
  const Claim claim(*this);
  RunClaimed(timeout);
}

template <class Plan, class NamedTensor>
Event BasicExecutor<Plan, NamedTensor>::RunAsync() {
  Claim claim(*this);
  Prepare();
  if (event_.IsFinished()) event_.Reset();
  event_.SetScheduled();
  claim.Keep();
  state_ = State::kRunningAsync;
  this->StartAllObservers();
  current_->RunAsync([this](std::exception_ptr error) { Finish(std::move(error)); });
  return event_;
}

template <class Plan, class NamedTensor>
void BasicExecutor<Plan, NamedTensor>::Cancel() {
  const Plan plan = plan_;  // who is told of the end may end the executor, and call it too
  detail::IntrusivePtr<BoundPlan> current;
  {
    detail::MutexLock lock(current_mutex_);
    if (!bound_.empty()) current = bound_.front();
  }
  if (current) current->Cancel();
}

template <class Plan, class NamedTensor>
void BasicExecutor<Plan, NamedTensor>::Bind(std::string_view name, Tensor tensor) {
  CheckIdle();
  const bool unbind = tensor.dtype() == DType::kUndefined;
  if (Input* input = FindInput(name)) {
    if (!unbind) CheckInput(*input, tensor);
    input->bound = !unbind;
    input->tensor = std::move(tensor);
    changed_ = true;
    return;
  }
  for (Output& output : outputs_) {
    if (view().name(output.value) != name) continue;
    if (!unbind) CheckOutput(output, tensor);
    output.bound = std::move(tensor);
    changed_ = true;
    return;
  }
  ThrowUnknown(name);
}

template <class Plan, class NamedTensor>
BasicNamedTensors<NamedTensor> BasicExecutor<Plan, NamedTensor>::outputs() const {
  CheckIdle();
  return Values();
}

template <class Plan, class NamedTensor>
const Tensor& BasicExecutor<Plan, NamedTensor>::output(std::string_view name) const {
  CheckIdle();
  for (const Output& output : outputs_)
    if (view().name(output.value) == name) return Value(output);
  ThrowUnknown(name);
}

template <class Plan, class NamedTensor>
OperatorBase& BasicExecutor<Plan, NamedTensor>::op(int node) {
  plan_.graph().node(node);
  if (!current_)
    Throw(ErrorCode::kFailedPrecondition, "the executor has no operators before its first run");
  return current_->op(node);
}

template <class Plan, class NamedTensor>
std::string BasicExecutor<Plan, NamedTensor>::ExplainMode() const {
  return current_ ? current_->ExplainMode() : "not known before the first run";
}

using Executor = BasicExecutor<Plan, NamedTensor>;
#ifdef OPKIT_EXTERN_GRAPH  // compiled elsewhere, see cmake/OpkitStandardOperators.cmake
extern template class BasicExecutor<Plan, NamedTensor>;
#endif

}  // namespace opkit

#endif  // OPKIT_GRAPH_EXECUTOR_HPP_
