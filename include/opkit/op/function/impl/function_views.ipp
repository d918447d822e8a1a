// The views of an operator's tensors that are the arguments of its functions.
#ifndef OPKIT_OP_FUNCTION_IMPL_FUNCTION_VIEWS_IPP_
#define OPKIT_OP_FUNCTION_IMPL_FUNCTION_VIEWS_IPP_

#include "opkit/core/layout_registry.hpp"
#include "opkit/op/boundary/host/resource_state.hpp"
#include "opkit/op/function/impl/function_state.ipp"
#include "opkit/op/op_registry.hpp"
#include "opkit/op/schema.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The arguments of the functions, and the memory that their views point into. A run that ends after
// its function has returned keeps this object.
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
    return MakeIntrusive<FunctionRun>(HostTable::Global(), name(), op_.device(), inputs_.size(),
                                      reqs_.size());
  }

  // True if the views are up to date: no tensor has changed since they were bound.
  bool AreBound() const {
    if (!bound_ || inferred_ != op_.inference().version() || !op_.inference().fresh()) return false;
    for (const BoundTensor& one : bound_tensors_)
      if (!one.blob->Holds(one.tensor) ||
          !one.tensor->IsDenseAt(one.data, one.dtype, one.extents, one.rank))
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
  // Makes an output whose shape inference does not know.
  const OpTensor& MakeOutput(FunctionRun& run, size_t o, const Shape& shape, DType dtype) {
    const int output = static_cast<int>(o);
    if (o >= reqs_.size() || !open_[o])
      Throw(ErrorCode::kInvalidArgument, "allocate_output(", output, ") in operator ", name(),
            o < reqs_.size() ? ": this output has its memory, or the node leaves it out"
                             : StrCat(", which has ", reqs_.size(), " outputs"));
    if (const DType inferred = op_.inference().outputs()[o].dtype;
        inferred != DType::kUndefined && inferred != dtype)
      Throw(ErrorCode::kTypeMismatch, "allocate_output(", output, ") in operator ", name(), " of ",
            dtype, ", but inferType says ", inferred);
    run.outputs[o].Bind(*op_.Output(output, shape, dtype), OpReq::kWrite);
    open_[o] = false;
    return run.output_views[o] = run.outputs[o].view;
  }
  // Throws if the function has returned without making all outputs that it must make.
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
    const int64_t* extents;  // with `rank`; comparing two Shapes would cost 4 ns
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
      RequirePlain(tensor.dtype(), "input ", i, " of operator ", name());
      const Tensor* readable = &tensor;
      if (!tensor.is_dense() && !node_.record->Has(OPKIT_OP_ACCEPTS_STRIDES)) [[unlikely]] {
        CheckCopyable(i, tensor, run.resource.asynchronous);
        run.dense[i].CopyFrom(tensor);
        readable = &run.dense[i];
      }
      inputs_[i] = &tensor;
      run.inputs[i].Bind(*readable, OpReq::kWrite);
      run.input_views[i] = run.inputs[i].view;
      NameLayout(tensor, i, inputs_.size(), run.input_layouts, run.call.input_layouts);
    }
  }
  OPKIT_IMAGE_LOCAL static void NameLayout(const Tensor& tensor, size_t i, size_t count,
                                           std::vector<const char*>& names,
                                           const char* const*& passed) {
    if (tensor.layout().is_standard()) [[likely]] {
      if (passed) names[i] = nullptr;
      return;
    }
    names.resize(count);
    names[i] = LayoutNamePointer(tensor.layout().id);
    passed = names.data();
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
      // If the functions are one more backend of an existing operator, the schema of that operator
      // infers.
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
      NameLayout(*tensor, o, reqs_.size(), run.output_layouts, run.call.output_layouts);
    }
  }
  // Returns the inferred dtype and shape. Without setInferShape returns the output tensor's dtype
  // and shape.
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
  std::vector<const Tensor*> inputs_;  // the current run's; null for an input that is left out
  std::vector<OpReq> reqs_;
  std::vector<bool> mutated_;
  std::vector<bool> open_;  // outputs that the function must make in the current run
  std::vector<BoundTensor> bound_tensors_;
  uint64_t inferred_ = 0;  // the inference version for which scratch was measured
  bool bound_ = false;     // the views are reusable: all requests are kWrite, no open_
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_FUNCTION_IMPL_FUNCTION_VIEWS_IPP_
