// FunctionBody: one instance of a function operator, whatever its device: attributes, state, the
// views its functions are called with, scratch, requests. Nothing is allocated in a run whose
// shapes are those of the run before.
#ifndef OPKIT_OP_FUNCTION_BODY_HPP_
#define OPKIT_OP_FUNCTION_BODY_HPP_

#include "opkit/op/function_record.hpp"
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
};

// A forward operator leaves its state where the backward operator of the same node finds it. It is
// emptied when the forward operator is destroyed.
struct FunctionState : RefCounted {
  std::unique_ptr<StatefulOp> op;
};
using FunctionStatePtr = IntrusivePtr<FunctionState>;
inline constexpr const char* kStateArgument = "__state";
inline std::string FunctionStateBlob(const OperatorDef& def) {
  return StrCat("__state of ", def.type(), " ", def.name(), " ",
                def.outputs().empty() ? std::string() : def.outputs()[0]);
}

// target += term, element by element; both dense.
template <class AnyTensor>
void AddTensor(const AnyTensor& target, const AnyTensor& term) {
  const DType dtype = target.dtype();
  auto add = [&]<class T>(std::type_identity<T>, int64_t count) {
    auto* to = static_cast<T*>(target.raw_mutable_data());
    const auto* from = static_cast<const T*>(term.raw_data());
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(to[i] + from[i]);
  };
  if (dtype == DType::kComplex64) {
    add(std::type_identity<float>{}, 2 * target.numel());
  } else if (dtype == DType::kComplex128) {
    add(std::type_identity<double>{}, 2 * target.numel());
  } else {
    DispatchDType<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, float16,
                  bfloat16, float, double>(
        dtype, [&]<class T>() { add(std::type_identity<T>{}, target.numel()); });
  }
}

// A template only for what it costs to compile: programs without function operators do not pay.
template <class Record>
class FunctionBody {
 public:
  FunctionBody(OperatorBase& op, IntrusivePtr<Record> record, FunctionPass pass)
      : op_(op),
        record_(std::move(record)),
        pass_(pass),
        functions_(*record_->Find(op.device().type)),
        attrs_(op.def().args()),
        inputs_(static_cast<size_t>(op.InputSize())),
        outputs_(static_cast<size_t>(op.OutputSize())),
        dense_(inputs_.size()),
        pointers_(inputs_.size()),
        sums_(outputs_.size()),
        reqs_(outputs_.size(), OpReq::kWrite),
        input_views_(inputs_.size()),
        output_views_(outputs_.size()) {
    mutated_.resize(inputs_.size());
    if (pass == FunctionPass::kForward)
      for (int input : FunctionMutatedInputs(*record_, attrs_)) {
        if (static_cast<size_t>(input) >= inputs_.size())
          Throw(ErrorCode::kInvalidArgument, "mutateInputs of operator ", record_->name,
                " names input ", input, ", but the node has ", inputs_.size());
        mutated_[static_cast<size_t>(input)] = true;
      }
    resource_.op = record_->name;
    resource_.device = op.device();
    const std::string key = StrCat(op.type(), " ", op.def().name(), " ", op.def().outputs());
    for (char c : key)
      resource_.random_key = MixBits(resource_.random_key ^ static_cast<unsigned char>(c));
    MakeState();
  }
  FunctionBody(const FunctionBody&) = delete;
  FunctionBody& operator=(const FunctionBody&) = delete;
  ~FunctionBody() {
    if (owns_state_) state_->op.reset();
  }

  void SetReq(int output, OpReq req) {
    if (output < 0 || static_cast<size_t>(output) >= reqs_.size())
      Throw(ErrorCode::kOutOfRange, "output ", output, " of operator ", ToString(op_.def()),
            ", which has ", reqs_.size());
    reqs_[static_cast<size_t>(output)] = req == OpReq::kInplace ? OpReq::kWrite : req;
  }

  void Run(const FunctionDeviceLink& link) {
    resource_.asynchronous = link.asynchronous;
    resource_.stream = link.stream;
    resource_.context = link.context;
    resource_.launch = link.launch;
    StartRandom();
    BindInputs();
    if (!op_.inference().IsFresh(pointers_)) [[unlikely]]
      Infer();
    if (inferred_ != op_.inference().version()) [[unlikely]]
      MeasureScratch();
    resource_.scratch = op_.Scratch(resource_.scratch_bytes);
    const Release release{*this};
    BindOutputs();
    OpResource resource(&resource_);
    CallFunction(*record_, pass_ == FunctionPass::kForward ? "forward" : "backward",
                 [&] { return Call(resource); });
    AddUp(resource);
  }

 private:
  struct Release {
    FunctionBody& self;
    ~Release() { self.ReleaseMemory(); }
  };

  void MakeState() {
    if (!functions_.create_state) return;
    const OperatorDef& def = op_.def();
    if (pass_ == FunctionPass::kBackward && def.args().Has(kStateArgument)) {
      const std::string name = def.args().Get<std::string>(kStateArgument);
      const Blob* blob = op_.workspace()->FindBlob(name);
      if (!blob)
        Throw(ErrorCode::kFailedPrecondition, "operator ", ToString(def), " needs the state of ",
              record_->name, ", whose operator must be created before it, in the same workspace");
      state_ = blob->Get<FunctionStatePtr>();
      return;
    }
    state_ = MakeIntrusive<FunctionState>();
    const OpContext context{op_.device()};
    CallFunction(*record_, "createOpState",
                 [&] { return functions_.create_state(attrs_, context, state_->op); });
    if (!state_->op)
      Throw(ErrorCode::kOperatorFailed, "createOpState of operator ", record_->name,
            " succeeded but made no StatefulOp");
    owns_state_ = true;
    if (pass_ != FunctionPass::kForward) return;
    Blob* blob = op_.workspace()->CreateBlob(FunctionStateBlob(def));
    if (blob->IsType<FunctionStatePtr>() && blob->Get<FunctionStatePtr>()->op)
      Throw(ErrorCode::kAlreadyExists, "two operators ", ToString(def),
            " that keep a state write the same output; give them different names");
    blob->Emplace<FunctionStatePtr>(state_);
  }

  // Runs count from the last SetSeed on.
  void StartRandom() {
    const uint64_t epoch = g_random_seed.epoch.load(std::memory_order_relaxed);
    resource_.run = epoch == random_epoch_ ? resource_.run + 1 : 0;
    random_epoch_ = epoch;
    resource_.random_drawn = false;
  }

  void BindInputs() {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!op_.HasInput(static_cast<int>(i))) continue;
      const Tensor& tensor = op_.Input(static_cast<int>(i));
      if (!tensor.initialized() || !tensor.layout().is_standard()) [[unlikely]]
        Unreadable(i, tensor);
      const Tensor* readable = &tensor;
      if (!tensor.is_dense() && !record_->accepts_strides) [[unlikely]] {
        CheckCopyable(i, tensor);
        dense_[i].CopyFrom(tensor);
        readable = &dense_[i];
      }
      pointers_[i] = &tensor;
      inputs_[i].Bind(*readable, OpReq::kWrite);
      input_views_[i] = inputs_[i].view;
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
    const char* why = mutated_[i]              ? "it is written to"
                      : resource_.asynchronous ? "work that is still under way may write to it"
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
      InferFunction(*record_, attrs_, pass_, context);
      if (!record_->infer_shape && pass_ == FunctionPass::kForward) return;
      for (int o = 0; o < context.num_outputs(); ++o)
        if (const SymbolicShape& shape = context.output(o).shape;
            !shape.is_known() && op_.HasOutput(o))
          Throw(ErrorCode::kInvalidArgument, "inferShape of operator ", record_->name,
                " leaves output ", o, " unknown: ", ToString(shape));
    };
    op_.inference().Infer(op_.def(), pointers_, infer, [] {});
    op_.inference().Keep();
  }
  OPKIT_COLD void MeasureScratch() {
    std::vector<TensorInfo> inputs;
    for (const Tensor* input : pointers_)
      inputs.push_back(input ? TensorInfo::Of(*input) : TensorInfo());
    if (pass_ == FunctionPass::kForward)
      resource_.scratch_bytes = FunctionScratch(*record_, attrs_, inputs);
    inferred_ = op_.inference().version();
  }

  void BindOutputs() {
    for (size_t o = 0; o < outputs_.size(); ++o) {
      const int output = static_cast<int>(o);
      OpReq req = op_.HasOutput(output) ? reqs_[o] : OpReq::kNone;
      if (req == OpReq::kNone) {
        output_views_[o] = OpTensor();
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
        sums_[o].SetDevice(MemoryDevice(op_.device()));
        sums_[o].Resize(*wanted.shape, wanted.dtype);
        targets_.emplace_back(o, *tensor);
        tensor = &sums_[o];
        req = OpReq::kWrite;
      }
      if (req == OpReq::kWrite && tensor->raw_data())
        for (const OpTensor& input : input_views_)
          if (input.raw_data() == tensor->raw_data()) req = OpReq::kInplace;
      outputs_[o].Bind(*tensor, req);
      output_views_[o] = outputs_[o].view;
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
    if (dtype == DType::kUndefined || (!info.known && !record_->infer_type))
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
    if (!functions_.create_state) {
      auto call = [&](auto& f) { return f(attrs_, input_views_, output_views_, resource); };
      return call(pass_ == FunctionPass::kForward ? functions_.forward : functions_.backward);
    }
    if (!state_->op)
      return OpStatus::Failure("the operator ", record_->name, " that made the state is destroyed");
    std::vector<OpTensor> inputs(input_views_), outputs(output_views_);
    auto call = [&](std::vector<OpTensor> ins, std::vector<OpTensor> outs) {
      return pass_ == FunctionPass::kForward
                 ? state_->op->Forward(std::move(ins), std::move(outs), resource)
                 : state_->op->Backward(std::move(ins), std::move(outs), resource);
    };
    return CallForStatus(call, std::move(inputs), std::move(outputs));
  }

  void AddUp(OpResource& resource) {
    for (auto& [o, target] : targets_) {
      if (!resource_.asynchronous) {
        AddTensor(target, sums_[o]);
      } else if (IsHostAccessible(op_.device().type)) {
        resource.launch([target = target, term = sums_[o]] { AddTensor(target, term); });
      } else {
        Throw(ErrorCode::kUnsupported, "results cannot be added up on ", op_.device(),
              "; write functions that respect OpReq::kAdd and say .setAcceptAdd()");
      }
    }
  }
  // On a stream the work that was issued may still use what the functions allocated.
  void ReleaseMemory() noexcept {
    targets_.clear();
    if (resource_.memory.empty() && resource_.temporaries.empty()) return;
    try {
      if (resource_.asynchronous && resource_.launch)
        resource_.launch(resource_.context, [memory = std::move(resource_.memory),
                                             more = std::move(resource_.temporaries)] {});
    } catch (...) {  // no memory to wait with: what is freed here was lost anyway
    }
    resource_.memory.clear();
    resource_.temporaries.clear();
  }

  OperatorBase& op_;
  IntrusivePtr<Record> record_;
  FunctionPass pass_;
  FunctionDevice& functions_;
  AttrMap attrs_;
  std::vector<TensorSlot> inputs_, outputs_;
  std::vector<Tensor> dense_;            // copies of strided inputs
  std::vector<const Tensor*> pointers_;  // the inputs of the run in progress; null where left out
  std::vector<Tensor> sums_;             // results that are to be added to an output
  std::vector<std::pair<size_t, Tensor>> targets_;
  std::vector<OpReq> reqs_;
  std::vector<bool> mutated_;
  std::vector<OpTensor> input_views_, output_views_;
  ResourceState resource_;
  FunctionStatePtr state_;
  uint64_t random_epoch_ = 0;
  uint64_t inferred_ = 0;  // the version of inference that scratch was measured for
  bool owns_state_ = false;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_FUNCTION_BODY_HPP_
