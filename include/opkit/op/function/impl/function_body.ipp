// FunctionBody's definition: a node's state between its runs, the views that are the arguments of
// its functions, and a run. A run lasts from the call of its functions until their memory is freed.
#ifndef OPKIT_OP_FUNCTION_IMPL_FUNCTION_BODY_IPP_
#define OPKIT_OP_FUNCTION_IMPL_FUNCTION_BODY_IPP_

#include <cstring>
#include <optional>

#include "opkit/core/layout_registry.hpp"
#include "opkit/op/boundary/convert/abi_node.hpp"
#include "opkit/op/boundary/host/resource_state.hpp"
#include "opkit/op/function/function_body.hpp"
#include "opkit/op/function/function_calls.hpp"
#include "opkit/op/op_registry.hpp"
#include "opkit/op/schema.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Counts an operator in its library's FunctionUse for as long as it lives.
class CountedOperator {
 public:
  explicit CountedOperator(FunctionUse* use) : use_(use) {
    if (use_) use_->operators.fetch_add(1, std::memory_order_relaxed);
  }
  CountedOperator(CountedOperator&&) = delete;
  ~CountedOperator() {
    if (use_) use_->operators.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  FunctionUse* use_;  // null in the program itself
};

// The functions of a record that one operator runs, and the data that is the same in all runs.
struct FunctionNode {
  OperatorBase& op;
  const FunctionRecord record;
  const FunctionPass pass;
  FunctionDevice& functions;
  const IntrusivePtr<FunctionUse> in_use = record->in_use;
  const CountedOperator counted{in_use.get()};
  const AttrMap attrs = record->Attrs(op.def().args());

  bool is_forward() const { return pass == FunctionPass::kForward; }
};

// The state of a forward operator, which it leaves in a blob for the backward operators of the same
// node. `op` is null after the forward operator is destroyed.
struct FunctionState : RefCounted {
  IntrusivePtr<StatefulOp> op;
  bool is_shared = false;  // a backward operator has found it
  Mutex mutex;  // held by runs of a shared state: those of two losses may run in parallel
};
using FunctionStatePtr = IntrusivePtr<FunctionState>;

// An operator's handle of its state, which it has made or found.
class FunctionStateHandle {
 public:
  explicit FunctionStateHandle(FunctionNode& node) {
    if (!node.functions.create_state) return;
    if (node.functions.shares_state && !node.is_forward() &&
        node.op.def().args().Has(kStateArgument)) {
      FindForwardState(node);
      return;
    }
    state_ = MakeIntrusive<FunctionState>();
    state_->op = MakeOp(node);
    owns_state_ = true;
    if (const auto* direct = dynamic_cast<const DirectState*>(state_->op.get())) {
      const opkit_kernel& kernel = node.functions.abi;
      later_direct_ = node.is_forward() ? kernel.forward : kernel.backward;
      direct_instance_ = direct->instance;
    }
    if (node.functions.shares_state && node.is_forward()) LeaveForBackward(node);
  }
  FunctionStateHandle(FunctionStateHandle&&) = delete;
  ~FunctionStateHandle() {
    if (owns_state_) state_->op = {};
  }

  bool has_direct() const { return direct_; }
  // Calls the state's C function.
  opkit_status CallDirect(const opkit_call* call) const { return direct_(direct_instance_, call); }
  // Adds to `kept` the state, if there is one, and the node that the state may point into.
  void KeepIn(RefCountedList& kept) const {
    if (state_ && state_->op) kept.push_back(state_->op);
    if (node_) kept.push_back(node_);
  }
  OpStatus Run(const FunctionNode& node, std::span<const OpTensor> inputs,
               std::span<OpTensor> outputs, OpResource& resource) {
    if (!state_->op)
      return OpStatus::Failure("the operator ", node.record->name,
                               " that made the state is destroyed");
    OpStatus status = state_->op->Run(node.pass, inputs, outputs, resource);
    direct_ = later_direct_;
    return status;
  }

  // Returns the mutex that a run holds if several operators share the state; else null.
  Mutex* mutex() const {
    return shareable_ && shareable_->is_shared ? &shareable_->mutex : nullptr;
  }

 private:
  // Finds the state of the forward operator. Does not set a direct call, because the state's owner
  // may be destroyed before this operator.
  void FindForwardState(const FunctionNode& node) {
    const OperatorDef& def = node.op.def();
    const Blob* blob = node.op.workspace()->FindBlob(def.args().Get<std::string>(kStateArgument));
    if (!blob)
      Throw(ErrorCode::kFailedPrecondition, "operator ", ToString(def), " needs the state of ",
            node.record->name, ", whose operator must be created before it, in the same workspace");
    state_ = blob->Get<FunctionStatePtr>();
    state_->is_shared = true;
    shareable_ = state_.get();
  }
  // Makes the state. For a library's operator makes no AbiNode: the library's hook makes its own.
  IntrusivePtr<StatefulOp> MakeOp(FunctionNode& node) {
    if (node.record->library.empty()) node_ = MakeIntrusive<AbiNode>(node.op.def());
    const OpContext context{node.op.device(), &node.op.def(), node_ ? &node_->node() : nullptr,
                            node.op.config()};
    IntrusivePtr<StatefulOp> made;
    CallFunction(*node.record, "createOpState",
                 [&] { return node.functions.create_state(node.attrs, context, made); });
    if (!made)
      Throw(ErrorCode::kOperatorFailed, "createOpState of operator ", node.record->name,
            " succeeded but made no StatefulOp");
    return made;
  }
  void LeaveForBackward(const FunctionNode& node) {
    const OperatorDef& def = node.op.def();
    shareable_ = state_.get();
    Blob* blob = node.op.workspace()->CreateBlob(FunctionStateBlob(def));
    if (blob->IsType<FunctionStatePtr>() && blob->Get<FunctionStatePtr>()->op)
      Throw(ErrorCode::kAlreadyExists, "two operators ", ToString(def),
            " that keep a state write the same output; give them different names");
    blob->Emplace<FunctionStatePtr>(state_);
  }

  IntrusivePtr<AbiNode> node_;  // the state may point into it
  FunctionStatePtr state_;
  FunctionState* shareable_ = nullptr;  // the same, if another operator may also run it
  // Replaces the state's Run from the second run on; the first run goes through the state, which
  // records it.
  decltype(opkit_kernel::forward) direct_ = nullptr, later_direct_ = nullptr;
  void* direct_instance_ = nullptr;
  bool owns_state_ = false;
};

// The arguments of the functions, and the memory that their views point into. A run that ends after
// its function has returned keeps it.
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
  std::vector<Tensor> sums;   // results to be added to an output
  std::vector<OpTensor> input_views, output_views;
  std::vector<const char*> input_layouts, output_layouts;  // empty if all are standard
};

// Binds the views of an operator's tensors for its functions: infers, makes outputs and measures
// scratch.
class FunctionViews {
 public:
  explicit FunctionViews(FunctionNode& node)
      : node_(node),
        op_(node.op),
        inputs_(Index(op_.InputSize())),
        reqs_(Index(op_.OutputSize()), OpReq::kWrite),
        mutated_(inputs_.size()) {
    if (!node.is_forward()) return;
    for (int input : FunctionMutatedInputs(*node.record, op_.def())) {
      if (Index(input) >= inputs_.size())
        Throw(ErrorCode::kInvalidArgument, "mutateInputs of operator ", name(), " names input ",
              input, ", but the node has ", inputs_.size());
      mutated_[Index(input)] = true;
    }
  }

  void SetReq(int output, OpReq req) {
    if (output < 0 || Index(output) >= reqs_.size())
      Throw(ErrorCode::kOutOfRange, "output ", output, " of operator ", ToString(op_.def()),
            ", which has ", reqs_.size());
    reqs_[Index(output)] = req == OpReq::kInplace ? OpReq::kWrite : req;
    bound_ = false;
  }
  // Makes a run whose views are not bound yet.
  IntrusivePtr<FunctionRun> NewRun() {
    inferred_ = 0;
    bound_ = false;
    return MakeIntrusive<FunctionRun>(ProgramHost(), name(), op_.device(), inputs_.size(),
                                      reqs_.size());
  }

  // True if the views are up to date: no tensor has changed since they were bound.
  bool AreBound() const {
    if (!bound_ || inferred_ != op_.inference().version() || !op_.inference().fresh()) return false;
    for (const BoundTensor& one : bound_tensors_)
      if (!one.blob->Holds(one.tensor) ||
          !one.tensor->Is(one.data, one.dtype, one.extents, one.rank))
        return false;
    return true;
  }
  // Infers if the inputs have changed, makes the outputs, and binds the views of `run`.
  OPKIT_COLD void Bind(FunctionRun& run, const FunctionDeviceLink& link) {
    bound_ = false;
    BindInputs(run);
    if (!op_.inference().IsFresh(inputs_)) Infer(link);
    if (inferred_ != op_.inference().version()) MeasureScratch(run);
    BindOutputs(run);
    bound_tensors_.clear();
    for (int i = 0; i < op_.InputSize(); ++i)
      if (op_.HasInput(i)) Remember(op_.InputBlob(i), run.inputs[Index(i)]);
    for (int o = 0; o < op_.OutputSize(); ++o)
      if (op_.HasOutput(o)) Remember(*op_.OutputBlob(o), run.outputs[Index(o)]);
    bound_ = true;
    for (const OpReq req : reqs_) bound_ &= req == OpReq::kWrite;
    for (const bool open : open_) bound_ &= !open;
    for (const BoundTensor& one : bound_tensors_)
      if (!one.tensor) bound_ = false;
  }
  // Makes an output that inference has left open.
  const OpTensor& MakeOutput(FunctionRun& run, size_t o, const Shape& shape, DType dtype) {
    const int output = static_cast<int>(o);
    if (o >= reqs_.size() || !open_[o])
      Throw(ErrorCode::kInvalidArgument, "allocate_output(", output, ") in operator ", name(),
            o < reqs_.size() ? ": this output has its memory, or nobody wants it"
                             : StrCat(", which has ", reqs_.size(), " outputs"));
    if (const DType inferred = op_.inference().outputs()[o].dtype;
        inferred != DType::kUndefined && inferred != dtype)
      Throw(ErrorCode::kTypeMismatch, "allocate_output(", output, ") in operator ", name(), " of ",
            dtype, ", but inferType says ", inferred);
    run.outputs[o].Bind(*op_.Output(output, shape, dtype), OpReq::kWrite);
    open_[o] = false;
    return run.output_views[o] = run.outputs[o].view;
  }
  // Throws if the function has returned without making an open output.
  void CheckMade() const {
    for (size_t o = 0; o < open_.size(); ++o)
      if (open_[o]) [[unlikely]]
        Throw(ErrorCode::kOperatorFailed, "forward of operator ", name(),
              " returned without making output ", o,
              ", whose shape inference leaves open; call allocate_output(", o,
              ", shape, dtype) before forward returns");
  }
  // Adds the storages of the bound tensors to `kept`.
  void KeepStorages(RefCountedList& kept) const {
    for (const BoundTensor& one : bound_tensors_)
      if (one.tensor && one.tensor->storage()) kept.push_back(one.tensor->storage());
  }

 private:
  // The properties of a tensor when it was bound.
  struct BoundTensor {
    const Blob* blob;
    const Tensor* tensor;
    const void* data;
    const int64_t* extents;  // with the rank: comparing two Shapes would cost 4 ns each
    int rank;
    DType dtype;
  };
  // The dtype and shape that an output must get.
  struct Wanted {
    DType dtype;
    const Shape* shape;
  };

  const std::string& name() const { return node_.record->name; }

  void Remember(const Blob& blob, const TensorSlot& slot) {
    const bool direct = blob.IsType<Tensor>() && &blob.Get<Tensor>() == slot.view.tensor();
    bound_tensors_.push_back({&blob, direct ? slot.view.tensor() : nullptr, slot.view.raw_data(),
                              slot.shape.data(), slot.shape.rank(), slot.view.dtype()});
  }

  void BindInputs(FunctionRun& run) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!op_.HasInput(static_cast<int>(i))) continue;
      const Tensor& tensor = op_.Input(static_cast<int>(i));
      if (!tensor.initialized() || (!tensor.layout().is_standard() &&
                                    tensor.layout() != op_.InputLayout(static_cast<int>(i))))
          [[unlikely]]
        Unreadable(i, tensor);
      const Tensor* readable = &tensor;
      if (!tensor.is_dense() && !node_.record->Has(OPKIT_OP_ACCEPTS_STRIDES)) [[unlikely]] {
        CheckCopyable(i, tensor, run.resource.asynchronous);
        run.dense[i].CopyFrom(tensor);
        readable = &run.dense[i];
      }
      inputs_[i] = &tensor;
      run.inputs[i].Bind(*readable, OpReq::kWrite);
      run.input_views[i] = run.inputs[i].view;
      TellLayout(tensor, i, inputs_.size(), run.input_layouts, run.call.input_layouts);
    }
  }
  OPKIT_IMAGE_LOCAL static void TellLayout(const Tensor& tensor, size_t i, size_t count,
                                           std::vector<const char*>& names,
                                           const char* const*& told) {
    if (tensor.layout().is_standard()) [[likely]] {
      if (told) names[i] = nullptr;
      return;
    }
    names.resize(count);
    names[i] = LayoutNamePointer(tensor.layout().id);
    told = names.data();
  }
  [[noreturn]] OPKIT_COLD void Unreadable(size_t i, const Tensor& tensor) const {
    if (!tensor.initialized())
      throw Error(ErrorCode::kUninitialized,
                  StrCat("input ", i, " '", op_.def().inputs()[i], "' of operator ", name(),
                         " is read before anything was written to it"),
                  &tensor);
    throw Error(ErrorCode::kUnsupported,
                StrCat("input ", i, " of operator ", name(), " is in layout ", tensor.layout(),
                       ", but it takes ", op_.InputLayout(static_cast<int>(i))),
                &tensor);
  }
  OPKIT_COLD void CheckCopyable(size_t i, const Tensor& tensor, bool asynchronous) const {
    const char* why = mutated_[i]    ? "it is written to"
                      : asynchronous ? "work that is still under way may write to it"
                                     : nullptr;
    if (why)
      throw Error(ErrorCode::kUnsupported,
                  StrCat("input ", i, " of operator ", name(),
                         " has strides and cannot be copied, because ", why,
                         "; make it dense, or write functions that use strides() and say "
                         ".acceptsStrides()"),
                  &tensor);
  }

  OPKIT_COLD void Infer(const FunctionDeviceLink& link) {
    const bool infers_shapes = node_.record->infer_shape || node_.record->abi.infer_shape;
    auto infer = [&](InferenceContext& context) {
      // If the functions are another backend of an existing operator, the schema of that operator
      // infers the shapes.
      const bool silent = node_.is_forward() && !infers_shapes;
      if (const OpSchema* schema = silent ? OpRegistry::Global().FindSchema(op_.type()) : nullptr) {
        schema->Infer(context);
      } else {
        if (node_.is_forward()) CheckDTypes("input", node_.record->inputs, context.inputs());
        InferFunction(*node_.record, node_.attrs, node_.pass, context);
        if (node_.is_forward()) CheckDTypes("output", node_.record->outputs, context.outputs());
      }
      if (silent) return;
      for (int o = 0; o < context.num_outputs(); ++o)
        if (const SymbolicShape& shape = context.output(o).shape;
            !shape.is_known() && op_.HasOutput(o) && !node_.record->Has(OPKIT_OP_ALLOCATES_OUTPUTS))
          Throw(ErrorCode::kInvalidArgument, "inferShape of operator ", name(), " leaves output ",
                o, " unknown: ", ToString(shape));
    };
    // The stream may still be writing the data.
    op_.inference().Infer(op_.def(), inputs_, infer, [&] {
      if (link.drain) link.drain(link.context);
    });
    op_.inference().Keep();
  }
  OPKIT_COLD void MeasureScratch(FunctionRun& run) {
    std::vector<TensorInfo> infos;
    for (const Tensor* input : inputs_)
      infos.push_back(input ? TensorInfo::Of(*input) : TensorInfo());
    const FunctionOpRecord& record = *node_.record;
    const bool proposes = node_.functions.propose && op_.config();
    run.call.scratch_bytes = proposes
                                 ? op_.config()->scratch_bytes
                                 : FunctionScratch(*node_.record, node_.pass, op_.def(), infos);
    run.call.scratch =
        proposes || record.scratch || record.abi.scratch_bytes ? OPKIT_NO_BYTES : nullptr;
    inferred_ = op_.inference().version();
  }

  // True if the function makes the output itself.
  bool IsOpen(size_t o, OpReq req) const {
    const auto& info = op_.inference().outputs()[o];
    if (!node_.is_forward() || !node_.record->Has(OPKIT_OP_ALLOCATES_OUTPUTS) ||
        (info.known && info.dtype != DType::kUndefined))
      return false;
    if (req == OpReq::kAdd)
      Throw(ErrorCode::kUnsupported, "output ", o, " of operator ", name(),
            ", whose shape the data decides, cannot be added to");
    return true;
  }
  void BindOutputs(FunctionRun& run) {
    open_.assign(reqs_.size(), false);
    for (size_t o = 0; o < reqs_.size(); ++o) {
      const int output = static_cast<int>(o);
      OpReq req = op_.HasOutput(output) ? reqs_[o] : OpReq::kNone;
      if (req == OpReq::kNone) {
        run.output_views[o] = OpTensor();
        continue;
      }
      if (IsOpen(o, req)) {
        open_[o] = true;
        run.output_views[o] =
            OpTensor(nullptr, DType::kUndefined, {}, {}, MemoryDevice(op_.device()));
        continue;
      }
      const Wanted wanted = Want(output);
      Tensor before;  // the result is added to this tensor
      if (req == OpReq::kAdd) {
        CheckAddable(output, wanted);
        before = *op_.Output(output);
      }
      Tensor* tensor = op_.Output(output, *wanted.shape, wanted.dtype);
      // The output was strided or shared an input's memory, and now has its own memory.
      if (req == OpReq::kAdd && tensor->raw_data() != before.raw_data()) tensor->CopyFrom(before);
      if (req == OpReq::kAdd && !node_.record->Has(OPKIT_OP_ACCEPTS_ADD)) {
        Tensor& sum = run.sums[o];
        sum.SetDevice(MemoryDevice(op_.device()));
        sum.Resize(*wanted.shape, wanted.dtype);
        run.resource.memory.additions.push_back({*tensor, sum});
        run.resource.used = true;
        tensor = &sum;
        req = OpReq::kWrite;
      }
      if (req == OpReq::kWrite && tensor->raw_data())
        for (const OpTensor& input : run.input_views)
          if (input.raw_data() == tensor->raw_data()) req = OpReq::kInplace;
      run.outputs[o].Bind(*tensor, req);
      run.output_views[o] = run.outputs[o].view;
      TellLayout(*tensor, o, reqs_.size(), run.output_layouts, run.call.output_layouts);
    }
  }
  // Returns the inferred dtype and shape; without setInferShape those of the output tensor.
  Wanted Want(int output) {
    const auto& info = op_.inference().outputs()[Index(output)];
    if (info.known && info.dtype != DType::kUndefined) return {info.dtype, &info.shape};
    const Tensor& present = *op_.Output(output);
    const bool usable = present.dtype() != DType::kUndefined;
    if (!info.known && !usable)
      Throw(ErrorCode::kInvalidArgument, "operator ", name(), " has no setInferShape, and output ",
            output, " '", op_.def().outputs()[Index(output)],
            "' has no shape yet; add .setInferShape(f), or give the tensor its shape and dtype "
            "before the run");
    DType dtype = info.dtype;
    if (dtype == DType::kUndefined ||
        (!info.known && !node_.record->infer_type && !node_.record->abi.infer_type))
      dtype = present.dtype();
    if (dtype == DType::kUndefined)
      Throw(ErrorCode::kInvalidArgument, "the dtype of output ", output, " of operator ", name(),
            " is not known; add .setInferType(f)");
    return {dtype, info.known ? &info.shape : &present.shape()};
  }
  void CheckAddable(int output, const Wanted& wanted) {
    if (!op_.OutputLayout(output).is_standard())
      Throw(ErrorCode::kUnsupported, "output ", output, " of operator ", name(), " is in layout ",
            op_.OutputLayout(output), ", in which results cannot be added up");
    const Tensor& present = *op_.Output(output);
    if (!present.initialized() || present.dtype() != wanted.dtype ||
        present.shape() != *wanted.shape)
      Throw(ErrorCode::kFailedPrecondition, "output ", output, " of operator ", name(),
            " is to be added to, but it is ", present, " and the result is ", wanted.dtype,
            *wanted.shape);
  }

  FunctionNode& node_;
  OperatorBase& op_;
  std::vector<const Tensor*> inputs_;  // of the current run; null for an input that is left out
  std::vector<OpReq> reqs_;
  std::vector<bool> mutated_;
  std::vector<bool> open_;  // outputs that the function must make in the current run
  std::vector<BoundTensor> bound_tensors_;
  uint64_t inferred_ = 0;  // the inference version for which scratch was measured
  bool bound_ = false;     // the views are reusable: all requests are kWrite, no output is open
};

// Runs the functions of a record for one operator.
class RecordBody final : public FunctionBody, public OutputMaker {
 public:
  RecordBody(OperatorBase& op, FunctionRecord record, FunctionPass pass, FunctionDevice& functions)
      : node_{op, std::move(record), pass, functions},
        views_(node_),
        run_(NewRun()),
        state_(node_) {}

  void SetReq(int output, OpReq req) override { views_.SetReq(output, req); }
  bool is_async() const override { return node_.record->Has(OPKIT_OP_ASYNC) && node_.is_forward(); }
  void SetLink(const FunctionDeviceLink& link) override {
    link_ = link;
    Connect(*run_);
  }

  void Run() override {
    if (is_async() && run_.use_count() > 1) [[unlikely]]
      run_ = NewRun();  // the last run was cancelled and still continues
    const Release release{*this};
    opkit_call& call = run_->call;
    std::memset(call.author, 0, sizeof call.author);
    run_->call.random_seed = seeds_.Next();
    if (!views_.AreBound()) [[unlikely]]
      views_.Bind(*run_, link_);
    if (call.scratch_bytes != 0) call.scratch = node_.op.Scratch(call.scratch_bytes);
    std::optional<MutexLock> use;
    if (Mutex* shared = state_.mutex()) [[unlikely]]
      use.emplace(*shared);
    if (state_.has_direct()) {
      const HostErrorScope message;
      const opkit_status status = CallGuarded([&] { return state_.CallDirect(&call); });
      if (status != OPKIT_OK) [[unlikely]]
        ThrowStatus(*node_.record, PassName(), status);
    } else {
      OpResource handle(&call);
      CallFunction(*node_.record, PassName(), [&] { return Call(handle); });
    }
    if (!run_->resource.pending.empty()) [[unlikely]]
      if (std::exception_ptr failure = run_->resource.AwaitPending())
        std::rethrow_exception(failure);
    views_.CheckMade();
    if (run_->resource.deferrable) [[unlikely]]
      return EndLater();
    if (run_->resource.used) [[unlikely]]
      AddUp();
  }

 private:
  // Releases the memory of the run at the end of the scope, also after an exception.
  struct Release {
    RecordBody& self;
    ~Release() {
      if (self.run_->resource.used) [[unlikely]]
        self.ReleaseMemory();
    }
  };

  const OpTensor& MakeOutput(size_t o, const Shape& shape, DType dtype) override {
    return views_.MakeOutput(*run_, o, shape, dtype);
  }
  const char* PassName() const { return node_.is_forward() ? "forward" : "backward"; }
  IntrusivePtr<FunctionRun> NewRun() {
    IntrusivePtr<FunctionRun> run = views_.NewRun();
    const OperatorDef& def = node_.op.def();
    seeds_.SetKey(StrCat(def.type(), " ", def.name(), " ", def.outputs()));
    run->resource.kept_by_work = {node_.record, node_.in_use};
    Connect(*run);
    return run;
  }
  // True if the function can make outputs: not if its work runs later, in the stream's thread.
  bool makes_outputs() const {
    return node_.is_forward() && node_.record->Has(OPKIT_OP_ALLOCATES_OUTPUTS) &&
           !(link_.asynchronous && link_.launch);
  }
  void Connect(FunctionRun& run) {
    run.resource.asynchronous = link_.asynchronous;
    run.resource.context = link_.context;
    run.resource.launch = link_.launch;
    run.resource.output_maker = makes_outputs() ? this : nullptr;
    run.resource.deferrable = is_async() && !link_.asynchronous ? &node_.op : nullptr;
    run.call.asynchronous = link_.asynchronous;
    run.call.stream = link_.stream;
  }

  OpStatus Call(OpResource& resource) {
    FunctionDevice& functions = node_.functions;
    if (functions.create_state)
      return state_.Run(node_, run_->input_views, run_->output_views, resource);
    return (node_.is_forward() ? functions.forward : functions.backward)(
        node_.attrs, run_->input_views, run_->output_views, resource);
  }

  void AddUp() {
    ResourceState& resource = run_->resource;
    for (const Addition& sum : resource.memory.additions) {
      if (!resource.asynchronous) {
        AddTensor(sum.target, sum.term);
      } else if (IsHostAccessible(node_.op.device().type)) {
        resource.launch(resource.context, [sum] { AddTensor(sum.target, sum.term); });
      } else {
        Throw(ErrorCode::kUnsupported, "results cannot be added up on ", node_.op.device(),
              "; write functions that respect OpReq::kAdd and say .acceptsAdd()");
      }
    }
  }
  // Ends the run of an asynchronous function that has returned: here, or with its completion.
  OPKIT_COLD void EndLater() {
    if (!run_->resource.deferred) {
      AddUp();
      node_.op.event().state()->Complete(nullptr);
      return;
    }
    const IntrusivePtr<DeferredRun> deferred = std::move(run_->resource.deferred);
    KeepRun(*deferred);
    run_->resource.HandOver(deferred.get());
    deferred->Arrive();
  }
  void KeepRun(DeferredRun& deferred) const {
    deferred.kept = {run_, node_.record, node_.in_use};
    if (FunctionUse* use = node_.in_use.get()) {
      use->late_runs.fetch_add(1, std::memory_order_relaxed);
      deferred.count = &use->late_runs;
    }
    state_.KeepIn(deferred.kept);
  }
  // Frees the memory that the functions allocated; on a stream only after the issued work, which
  // may still use it.
  OPKIT_COLD void ReleaseMemory() noexcept {
    ResourceState& resource = run_->resource;
    resource.used = false;
    resource.AwaitPending();
    if (resource.deferred) [[unlikely]]
      Abandon();
    resource.memory.additions.clear();
    if (resource.memory.empty()) return;
    try {
      if (resource.asynchronous && resource.launch)
        resource.launch(resource.context, [memory = std::move(resource.memory)] {});
    } catch (...) {  // no memory to wait with: the memory freed here was lost anyway
    }
    resource.memory.Clear();
  }
  // Handles a function that failed after it took its completion handle, which another thread may
  // still complete: the handle then completes only an unused event.
  OPKIT_COLD void Abandon() noexcept {
    ResourceState& resource = run_->resource;
    const IntrusivePtr<DeferredRun> deferred = std::move(resource.deferred);
    try {
      deferred->event = MakeIntrusive<EventState>();
      resource.memory.additions.clear();
      resource.HandOver(deferred.get());
      KeepRun(*deferred);
      views_.KeepStorages(deferred->kept);
      deferred->Arrive();
    } catch (...) {  // out of memory: the completion handle stays without effect
    }
  }

  FunctionNode node_;
  FunctionViews views_;
  FunctionDeviceLink link_;
  RunSeeds seeds_;
  IntrusivePtr<FunctionRun> run_;
  FunctionStateHandle state_;  // destroyed first: node_ keeps the library with its code
};

OPKIT_INLINE std::unique_ptr<FunctionBody> FunctionBody::Make(OperatorBase& op,
                                                              FunctionRecord record,
                                                              FunctionPass pass, size_t device) {
  FunctionDevice& functions = record->devices[device];
  return std::make_unique<RecordBody>(op, std::move(record), pass, functions);
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_OP_FUNCTION_IMPL_FUNCTION_BODY_IPP_
