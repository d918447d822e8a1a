// FunctionBody: one instance of a function operator, whatever its device: attributes, state, the
// views its functions are called with, scratch, requests. Nothing is allocated in a run whose
// shapes are those of the run before.
#ifndef OPKIT_OP_FUNCTION_FUNCTION_BODY_HPP_
#define OPKIT_OP_FUNCTION_FUNCTION_BODY_HPP_

#include "opkit/op/function/function_calls.hpp"
#include "opkit/op/operator.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

class FunctionRequests {
 public:
  virtual ~FunctionRequests() = default;
  virtual void SetOutputReq(int output, OpReq req) = 0;
};

// What a context offers to the functions, taken anew for each run.
struct FunctionDeviceLink {
  bool asynchronous = false;
  void* stream = nullptr;
  void* context = nullptr;
  void (*launch)(void*, UniqueFunction<void()>) = nullptr;
  void (*drain)(void*) = nullptr;  // waits for what was issued before; null where all is done
};

// A forward operator leaves its state where the backward operators of the same node find it. It is
// emptied when the forward operator is destroyed.
struct FunctionState : RefCounted {
  IntrusivePtr<StatefulOp> op;
  bool is_shared = false;  // some backward operator has found it
  Mutex mutex;             // held by the runs then: those of two losses may come side by side
};
using FunctionStatePtr = IntrusivePtr<FunctionState>;
inline constexpr const char* kStateArgument = "__state";
inline std::string FunctionStateBlob(const OperatorDef& def) {
  return StrCat("__state of ", def.type(), " ", def.name(), " ",
                def.outputs().empty() ? std::string() : def.outputs()[0]);
}

// What the functions are called with, and all that its views point into. A run that ends later than
// its function returns keeps it.
struct FunctionRun : RefCounted {
  FunctionRun(const opkit_host& host, std::string op, Device device, size_t num_inputs,
              size_t num_outputs)
      : inputs(num_inputs),
        outputs(num_outputs),
        dense(num_inputs),
        sums(num_outputs),
        input_views(num_inputs),
        output_views(num_outputs) {
    resource.op = std::move(op);
    resource.device = device;
    call.size = sizeof call;
    call.host = &host;
    call.context = &resource;
    call.op = resource.op.c_str();
    call.num_inputs = num_inputs;
    call.inputs = num_inputs ? &input_views[0].view() : nullptr;
    call.num_outputs = num_outputs;
    call.outputs = num_outputs ? &output_views[0].view() : nullptr;
    call.device_type = static_cast<int32_t>(device.type);
    call.device_index = device.index;
  }

  opkit_call call{};
  ResourceState resource;
  std::vector<TensorSlot> inputs, outputs;
  std::vector<Tensor> dense;  // copies of strided inputs
  std::vector<Tensor> sums;   // results that are to be added to an output
  std::vector<OpTensor> input_views, output_views;
};

// A template only for what it costs to compile: programs without function operators do not pay.
template <class Record>
class FunctionBody {
 public:
  FunctionBody(OperatorBase& op, IntrusivePtr<Record> record, FunctionPass pass)
      : op_(op),
        record_(std::move(record)),
        in_use_(record_->in_use),
        pass_(pass),
        functions_(*record_->Find(op.device().type)),
        attrs_(op.def().args()),
        pointers_(static_cast<size_t>(op.InputSize())),
        reqs_(static_cast<size_t>(op.OutputSize()), OpReq::kWrite),
        mutated_(pointers_.size()) {
    NewRun();
    if (pass == FunctionPass::kForward)
      for (int input : FunctionMutatedInputs(*record_, op.def())) {
        if (static_cast<size_t>(input) >= pointers_.size())
          Throw(ErrorCode::kInvalidArgument, "mutateInputs of operator ", record_->name,
                " names input ", input, ", but the node has ", pointers_.size());
        mutated_[static_cast<size_t>(input)] = true;
      }
    MakeState();
  }
  FunctionBody(const FunctionBody&) = delete;
  FunctionBody& operator=(const FunctionBody&) = delete;
  ~FunctionBody() {
    if (owns_state_) state_->op = {};
  }

  void SetReq(int output, OpReq req) {
    if (output < 0 || static_cast<size_t>(output) >= reqs_.size())
      Throw(ErrorCode::kOutOfRange, "output ", output, " of operator ", ToString(op_.def()),
            ", which has ", reqs_.size());
    reqs_[static_cast<size_t>(output)] = req == OpReq::kInplace ? OpReq::kWrite : req;
    bound_ = false;
  }

  // Its runs may end after they have returned.
  bool is_async() const { return record_->is_async && pass_ == FunctionPass::kForward; }

  // For a device whose link never changes once; else before each run.
  void SetLink(const FunctionDeviceLink& link) {
    link_ = link;
    Connect();
  }

  void Run() {
    if (is_async() && run_.use_count() > 1) [[unlikely]]
      NewRun();  // the last one was cancelled and still goes on
    const Release release{*this};
    opkit_call& call = run_->call;
    std::memset(call.author, 0, sizeof call.author);
    StartRandom();
    if (!IsBound()) [[unlikely]]
      Bind();
    if (call.scratch_bytes != 0) call.scratch = op_.Scratch(call.scratch_bytes);
    const StateUse use(shareable_);
    if (direct_) {
      const HostErrorScope message;
      const opkit_status status = CallGuarded([&] { return direct_(direct_instance_, &call); });
      if (status != OPKIT_OK) [[unlikely]]
        ThrowStatus(*record_, PassName(), status);
    } else {
      OpResource handle(&call);
      CallFunction(*record_, PassName(), [&] { return Call(handle); });
    }
    ResourceState& resource = run_->resource;
    if (resource.deferrable) [[unlikely]]
      return EndLater();
    if (resource.used) [[unlikely]]
      AddUp();
  }

 private:
  struct StateUse {
    explicit StateUse(FunctionState* state) : shared(state && state->is_shared ? state : nullptr) {
      if (shared) [[unlikely]]
        shared->mutex.Lock();
    }
    StateUse(const StateUse&) = delete;
    StateUse& operator=(const StateUse&) = delete;
    ~StateUse() {
      if (shared) [[unlikely]]
        shared->mutex.Unlock();
    }
    FunctionState* shared;
  };
  struct Release {
    FunctionBody& self;
    ~Release() {
      if (self.run_->resource.used) [[unlikely]]
        self.ReleaseMemory();
    }
  };

  const char* PassName() const { return pass_ == FunctionPass::kForward ? "forward" : "backward"; }
  void NewRun() {
    run_ = MakeIntrusive<FunctionRun>(ProgramHost(), record_->name, op_.device(), pointers_.size(),
                                      reqs_.size());
    const std::string key = StrCat(op_.type(), " ", op_.def().name(), " ", op_.def().outputs());
    random_key_ = 0;
    for (char c : key) random_key_ = MixBits(random_key_ ^ static_cast<unsigned char>(c));
    run_->resource.kept_by_work = {record_, record_->in_use};
    inferred_ = 0;
    bound_ = false;
    Connect();
  }
  void Connect() {
    ResourceState& resource = run_->resource;
    resource.asynchronous = link_.asynchronous;
    resource.context = link_.context;
    resource.launch = link_.launch;
    resource.deferrable = is_async() && !link_.asynchronous ? &op_ : nullptr;
    run_->call.asynchronous = link_.asynchronous;
    run_->call.stream = link_.stream;
  }

  // A tensor as it was when it was bound.
  struct BoundTensor {
    const Blob* blob;
    const Tensor* tensor;
    const void* data;
    const int64_t* extents;  // beside the rank: comparing two Shapes would be 4 ns each
    int rank;
    DType dtype;
  };
  // The views are those of the tensors as they are now: none has changed since they were bound.
  bool IsBound() const {
    if (!bound_ || inferred_ != op_.inference().version() || !op_.inference().fresh()) return false;
    for (const BoundTensor& one : bound_tensors_)
      if (!one.blob->Holds(one.tensor) ||
          !one.tensor->Is(one.data, one.dtype, one.extents, one.rank))
        return false;
    return true;
  }
  OPKIT_COLD void Bind() {
    bound_ = false;
    BindInputs();
    if (!op_.inference().IsFresh(pointers_)) Infer();
    if (inferred_ != op_.inference().version()) MeasureScratch();
    BindOutputs();
    bool plain = true;
    bound_tensors_.clear();
    for (int i = 0; i < op_.InputSize(); ++i)
      if (op_.HasInput(i)) Remember(op_.InputBlob(i), run_->inputs[static_cast<size_t>(i)]);
    for (int o = 0; o < op_.OutputSize(); ++o)
      if (op_.HasOutput(o)) Remember(*op_.OutputBlob(o), run_->outputs[static_cast<size_t>(o)]);
    for (const OpReq req : reqs_) plain &= req == OpReq::kWrite;
    for (const BoundTensor& one : bound_tensors_) plain &= one.tensor != nullptr;
    bound_ = plain;
  }
  void Remember(const Blob& blob, const TensorSlot& slot) {
    const bool direct = blob.IsType<Tensor>() && &blob.Get<Tensor>() == slot.view.tensor();
    bound_tensors_.push_back({&blob, direct ? slot.view.tensor() : nullptr, slot.view.raw_data(),
                              slot.shape.data(), slot.shape.rank(), slot.view.dtype()});
  }
  void MakeState() {
    if (!functions_.create_state) return;
    const OperatorDef& def = op_.def();
    const bool shared = functions_.shares_state && def.args().Has(kStateArgument);
    if (pass_ == FunctionPass::kBackward && shared) {
      const std::string name = def.args().Get<std::string>(kStateArgument);
      const Blob* blob = op_.workspace()->FindBlob(name);
      if (!blob)
        Throw(ErrorCode::kFailedPrecondition, "operator ", ToString(def), " needs the state of ",
              record_->name, ", whose operator must be created before it, in the same workspace");
      state_ = blob->Get<FunctionStatePtr>();
      state_->is_shared = true;
      shareable_ = state_.get();
      return;  // not directly: its owner may end before this operator
    }
    state_ = MakeIntrusive<FunctionState>();
    const OpContext context{op_.device(), &def};
    IntrusivePtr<StatefulOp> made;
    CallFunction(*record_, "createOpState",
                 [&] { return functions_.create_state(attrs_, context, made); });
    if (!made)
      Throw(ErrorCode::kOperatorFailed, "createOpState of operator ", record_->name,
            " succeeded but made no StatefulOp");
    state_->op = std::move(made);
    CallDirectly();
    owns_state_ = true;
    if (pass_ != FunctionPass::kForward || !functions_.shares_state) return;
    shareable_ = state_.get();
    Blob* blob = op_.workspace()->CreateBlob(FunctionStateBlob(def));
    if (blob->IsType<FunctionStatePtr>() && blob->Get<FunctionStatePtr>()->op)
      Throw(ErrorCode::kAlreadyExists, "two operators ", ToString(def),
            " that keep a state write the same output; give them different names");
    blob->Emplace<FunctionStatePtr>(state_);
  }

  void CallDirectly() {
    const auto* direct = dynamic_cast<const DirectState*>(state_->op.get());
    if (!direct) return;
    direct_ = direct->direct(pass_);
    direct_instance_ = direct->instance();
  }

  // Runs count from the last SetSeed on.
  void StartRandom() {
    const uint64_t epoch = g_random_seed.epoch.load(std::memory_order_relaxed);
    if (epoch != random_epoch_) [[unlikely]] {
      next_seed_ = MixBits(g_random_seed.seed.load(std::memory_order_relaxed) ^ random_key_);
      random_epoch_ = epoch;
    }
    run_->call.random_seed = next_seed_++;
  }

  void BindInputs() {
    for (size_t i = 0; i < pointers_.size(); ++i) {
      if (!op_.HasInput(static_cast<int>(i))) continue;
      const Tensor& tensor = op_.Input(static_cast<int>(i));
      if (!tensor.initialized() || !tensor.layout().is_standard()) [[unlikely]]
        Unreadable(i, tensor);
      const Tensor* readable = &tensor;
      if (!tensor.is_dense() && !record_->accepts_strides) [[unlikely]] {
        CheckCopyable(i, tensor);
        run_->dense[i].CopyFrom(tensor);
        readable = &run_->dense[i];
      }
      pointers_[i] = &tensor;
      run_->inputs[i].Bind(*readable, OpReq::kWrite);
      run_->input_views[i] = run_->inputs[i].view;
    }
  }
  [[noreturn]] OPKIT_COLD void Unreadable(size_t i, const Tensor& tensor) const {
    if (!tensor.initialized())
      throw Error(ErrorCode::kUninitialized,
                  StrCat("input ", i, " '", op_.def().inputs()[i], "' of operator ", record_->name,
                         " is read before anything was written to it"),
                  &tensor);
    throw Error(ErrorCode::kUnsupported,
                StrCat("input ", i, " of operator ", record_->name, " is in layout ",
                       tensor.layout(), ", but functions take the standard one"),
                &tensor);
  }
  OPKIT_COLD void CheckCopyable(size_t i, const Tensor& tensor) const {
    const char* why = mutated_[i]                   ? "it is written to"
                      : run_->resource.asynchronous ? "work that is still under way may write to it"
                                                    : nullptr;
    if (why)
      throw Error(ErrorCode::kUnsupported,
                  StrCat("input ", i, " of operator ", record_->name,
                         " has strides and cannot be copied, because ", why,
                         "; make it dense, or write functions that use strides() and say "
                         ".setAcceptStrides()"),
                  &tensor);
  }

  OPKIT_COLD void Infer() {
    auto infer = [this](InferenceContext& context) {
      const bool silent = pass_ == FunctionPass::kForward && !InfersShapes(*record_);
      // Another backend of an operator that exists leaves this to the operator's own schema.
      if (const OpSchema* schema = silent ? OpRegistry::Global().FindSchema(op_.type()) : nullptr) {
        schema->Infer(context);
      } else {
        InferFunction(*record_, attrs_, pass_, context);
      }
      if (!InfersShapes(*record_) && pass_ == FunctionPass::kForward) return;
      for (int o = 0; o < context.num_outputs(); ++o)
        if (const SymbolicShape& shape = context.output(o).shape;
            !shape.is_known() && op_.HasOutput(o))
          Throw(ErrorCode::kInvalidArgument, "inferShape of operator ", record_->name,
                " leaves output ", o, " unknown: ", ToString(shape));
    };
    // Data may still be on its way in the stream.
    op_.inference().Infer(op_.def(), pointers_, infer, [this] {
      if (link_.drain) link_.drain(link_.context);
    });
    op_.inference().Keep();
  }
  OPKIT_COLD void MeasureScratch() {
    std::vector<TensorInfo> inputs;
    for (const Tensor* input : pointers_)
      inputs.push_back(input ? TensorInfo::Of(*input) : TensorInfo());
    run_->call.scratch_bytes = FunctionScratch(*record_, pass_, op_.def(), inputs);
    inferred_ = op_.inference().version();
    run_->call.scratch = nullptr;
  }

  void BindOutputs() {
    for (size_t o = 0; o < reqs_.size(); ++o) {
      const int output = static_cast<int>(o);
      OpReq req = op_.HasOutput(output) ? reqs_[o] : OpReq::kNone;
      if (req == OpReq::kNone) {
        run_->output_views[o] = OpTensor();
        continue;
      }
      const Wanted wanted = Want(output);
      Tensor addend;  // what is added to
      if (req == OpReq::kAdd) {
        CheckAddable(output, wanted);
        addend = *op_.Output(output);
      }
      Tensor* tensor = op_.Output(output, *wanted.shape, wanted.dtype);
      // It was strided, or lay where an input lies, and has got memory of its own.
      if (req == OpReq::kAdd && tensor->raw_data() != addend.raw_data()) tensor->CopyFrom(addend);
      if (req == OpReq::kAdd && !record_->accepts_add) {
        Tensor& sum = run_->sums[o];
        sum.SetDevice(MemoryDevice(op_.device()));
        sum.Resize(*wanted.shape, wanted.dtype);
        run_->resource.memory.additions.push_back({*tensor, sum});
        run_->resource.used = true;
        tensor = &sum;
        req = OpReq::kWrite;
      }
      if (req == OpReq::kWrite && tensor->raw_data())
        for (const OpTensor& input : run_->input_views)
          if (input.raw_data() == tensor->raw_data()) req = OpReq::kInplace;
      run_->outputs[o].Bind(*tensor, req);
      run_->output_views[o] = run_->outputs[o].view;
    }
  }
  struct Wanted {
    DType dtype;
    const Shape* shape;
  };
  // What inference says; without setInferShape what the output tensor has.
  Wanted Want(int output) {
    const auto& info = op_.inference().outputs()[static_cast<size_t>(output)];
    if (info.known && info.dtype != DType::kUndefined) return {info.dtype, &info.shape};
    const Tensor& present = *op_.Output(output);
    const bool usable = present.dtype() != DType::kUndefined;
    if (!info.known && !usable)
      Throw(ErrorCode::kInvalidArgument, "operator ", record_->name,
            " has no setInferShape, and "
            "output ",
            output, " '", op_.def().outputs()[static_cast<size_t>(output)],
            "' has no "
            "shape yet; add .setInferShape(f), or give the tensor its shape and dtype before the "
            "run");
    DType dtype = info.dtype;
    if (dtype == DType::kUndefined || (!info.known && !InfersTypes(*record_)))
      dtype = present.dtype();
    if (dtype == DType::kUndefined)
      Throw(ErrorCode::kInvalidArgument, "the dtype of output ", output, " of operator ",
            record_->name, " is not known; add .setInferType(f)");
    return {dtype, info.known ? &info.shape : &present.shape()};
  }
  void CheckAddable(int output, const Wanted& wanted) {
    const Tensor& present = *op_.Output(output);
    if (!present.initialized() || present.dtype() != wanted.dtype ||
        present.shape() != *wanted.shape)
      Throw(ErrorCode::kFailedPrecondition, "output ", output, " of operator ", record_->name,
            " is to be added to, but it is ", present, " and the result is ", wanted.dtype,
            *wanted.shape);
  }

  OpStatus Call(OpResource& resource) {
    if (!functions_.create_state)
      return (pass_ == FunctionPass::kForward ? functions_.forward : functions_.backward)(
          attrs_, run_->input_views, run_->output_views, resource);
    if (!state_->op)
      return OpStatus::Failure("the operator ", record_->name, " that made the state is destroyed");
    return state_->op->Run(pass_, run_->input_views, run_->output_views, resource);
  }

  void AddUp() {
    ResourceState& resource = run_->resource;
    for (const Addition& sum : resource.memory.additions) {
      if (!resource.asynchronous) {
        AddTensor(sum.target, sum.term);
      } else if (IsHostAccessible(op_.device().type)) {
        resource.launch(resource.context, [sum] { AddTensor(sum.target, sum.term); });
      } else {
        Throw(ErrorCode::kUnsupported, "results cannot be added up on ", op_.device(),
              "; write functions that respect OpReq::kAdd and say .setAcceptAdd()");
      }
    }
  }
  // The function has returned; its run ends here, or with its completion.
  OPKIT_COLD void EndLater() {
    ResourceState& resource = run_->resource;
    if (!resource.deferred) {
      AddUp();
      op_.event().state()->Complete(nullptr);
      return;
    }
    const IntrusivePtr<DeferredRun> deferred = std::move(resource.deferred);
    deferred->kept = {run_, record_, record_->in_use};
    if (state_) deferred->kept.push_back(state_->op);
    resource.HandOver(deferred.get());
    deferred->Arrive();
  }
  // On a stream the work that was issued may still use what the functions allocated.
  OPKIT_COLD void ReleaseMemory() noexcept {
    ResourceState& resource = run_->resource;
    resource.used = false;
    if (resource.deferred) [[unlikely]]
      Abandon(resource);
    resource.memory.additions.clear();
    if (resource.memory.empty()) return;
    try {
      if (resource.asynchronous && resource.launch)
        resource.launch(resource.context, [memory = std::move(resource.memory)] {});
    } catch (...) {  // no memory to wait with: what is freed here was lost anyway
    }
    resource.memory.Clear();
  }
  // The function has failed after it took its completion, which may still be on its way: it then
  // ends nothing.
  OPKIT_COLD void Abandon(ResourceState& resource) noexcept {
    const IntrusivePtr<DeferredRun> deferred = std::move(resource.deferred);
    try {
      deferred->event = MakeIntrusive<EventState>();
      resource.memory.additions.clear();
      resource.HandOver(deferred.get());
      deferred->kept = {run_, record_, record_->in_use};
      for (const BoundTensor& one : bound_tensors_)
        if (one.tensor && one.tensor->storage()) deferred->kept.push_back(one.tensor->storage());
      if (state_) deferred->kept.push_back(state_->op);
      deferred->Arrive();
    } catch (...) {  // no memory: the completion finds nobody
    }
  }

  OperatorBase& op_;
  IntrusivePtr<Record> record_;
  IntrusivePtr<RefCounted> in_use_;
  FunctionPass pass_;
  FunctionDevice& functions_;
  AttrMap attrs_;
  std::vector<const Tensor*> pointers_;  // the inputs of the run in progress; null where left out
  std::vector<OpReq> reqs_;
  std::vector<bool> mutated_;
  IntrusivePtr<FunctionRun> run_;
  FunctionStatePtr state_;
  FunctionState* shareable_ = nullptr;      // the same, where another operator may run it as well
  DirectState::Function direct_ = nullptr;  // in place of the state's Run
  void* direct_instance_ = nullptr;
  FunctionDeviceLink link_;
  std::vector<BoundTensor> bound_tensors_;
  uint64_t random_key_ = 0, random_epoch_ = 0, next_seed_ = 0;
  bool bound_ = false;     // the views were bound in a run without special requests
  uint64_t inferred_ = 0;  // the version of inference that scratch was measured for
  bool owns_state_ = false;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_FUNCTION_FUNCTION_BODY_HPP_
