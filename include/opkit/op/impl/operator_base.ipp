// OperatorBase's definitions: binding, outputs that are resized or replaced, and the context of
// errors.
#ifndef OPKIT_OP_IMPL_OPERATOR_BASE_IPP_
#define OPKIT_OP_IMPL_OPERATOR_BASE_IPP_

#include <list>

#include "opkit/base/suggest.hpp"
#include "opkit/op/operator_base.hpp"
#include "opkit/op/schema.hpp"
#ifndef OPKIT_DEFINITIONS
#include "opkit/profile/environment.hpp"
#endif

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// The pending tensors, in an object of their own, because most runs have none.
struct PendingTensors::Items : RefCounted {
  struct Item {
    int place;
    Blob* blob;           // null for a copy of an input
    uint64_t invocation;  // for a copy: the id of the run that made it
    Tensor tensor;
  };
  std::list<Item> list;  // a list, so that the tensors keep their addresses
};
OPKIT_INLINE PendingTensors::Items& PendingTensors::items() {
  if (!items_) items_ = MakeIntrusive<Items>();
  return static_cast<Items&>(*items_);
}

OPKIT_INLINE Tensor* PendingTensors::Find(int output) {
  if (items_)
    for (Items::Item& item : items().list)
      if (item.blob && item.place == output) return &item.tensor;
  return nullptr;
}
OPKIT_INLINE Tensor* PendingTensors::Add(int output, Blob* blob, Tensor tensor) {
  items().list.push_back({output, blob, 0, std::move(tensor)});
  return &items().list.back().tensor;
}
OPKIT_INLINE const Tensor& PendingTensors::DenseInput(int input, FunctionRef<Tensor()> make) {
  // A copy from before this run, for the constructor or an observer, may be out of date.
  const uint64_t invocation = CurrentInvocation().id;
  for (const Items::Item& item : items().list)
    if (!item.blob && item.place == input && item.invocation == invocation) return item.tensor;
  items().list.push_back({input, nullptr, invocation, make()});
  return items().list.back().tensor;
}
OPKIT_INLINE void PendingTensors::Publish() {
  if (!items_) return;
  for (Items::Item& item : items().list)
    if (item.blob) *item.blob->GetMutable<Tensor>() = std::move(item.tensor);
  items_ = {};
}
OPKIT_INLINE void PendingTensors::AppendStorages(RefCountedList& out) const {
  if (!items_) return;
  for (const Items::Item& item : static_cast<const Items&>(*items_).list)
    out.push_back(item.tensor.storage());
}

OPKIT_INLINE void ScratchMemory::Plan(void* bytes, int64_t size, Storage owner) {
  planned_ = bytes;
  planned_bytes_ = size;
  planned_owner_ = std::move(owner);
}
OPKIT_INLINE void* ScratchMemory::TakeOwn(int64_t size, Device device) {
  if (size == 0) return nullptr;
  if (!own_ || own_->nbytes() < size) own_ = AllocateStorage(device, size);
  return own_->data();
}
OPKIT_INLINE void ScratchMemory::AppendStorages(RefCountedList& out) const {
  if (own_) out.push_back(own_);
  if (planned_owner_) out.push_back(planned_owner_);
}

OPKIT_INLINE OperatorCreator::Pointer OperatorCreator::operator()(
    const OperatorDef& def, Workspace* ws, const KernelConfig* config) const {
  return create_(def, ws, config);
}

}  // namespace detail

OPKIT_INLINE std::string detail::OperatorIdentity::Describe() const {
  std::string out = "in operator " + ToString(def);
  for (const detail::NamedAttribute& arg : def.args())
    out += ", " + arg.name + "=" + ToString(arg.value);
  out += ", on " + ToString(def.device());
  if (!def.backends().empty()) out += ", backend " + def.backends();
  if (line > 0) out += StrCat(", registered at ", file, ":", line);
  return out;
}

namespace detail {

OPKIT_INLINE void AddOperatorContext(Error& error, const OperatorIdentity& identity,
                                     const std::vector<const Tensor*>& inputs,
                                     const std::vector<const Tensor*>& outputs) {
  const OperatorDef& def = identity.def;
  auto name = [&](const std::vector<const Tensor*>& values, const std::vector<std::string>& names,
                  const char* what) {
    for (size_t i = 0; i < values.size(); ++i)
      if (error.subject() && values[i] == error.subject())
        error.AddContext(StrCat("while accessing ", what, " ", i, " '", names[i], "'"));
  };
  name(inputs, def.inputs(), "input");
  if (error.context().empty()) name(outputs, def.outputs(), "output");
  // An Error from an event already has the description of its operator.
  const std::string described = identity.Describe();
  bool told = false;
  for (const std::string& line : error.context()) told |= line == described;
  if (!told) error.AddContext(described);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i]) continue;
    const std::string place = StrCat("input ", i), &named = def.inputs()[i];
    error.AddContext(
        StrCat("  ", place, named == place ? "" : StrCat(" '", named, "'"), ": ", *inputs[i]));
  }
}

OPKIT_INLINE void RethrowDescribed(FunctionRef<void(Error&)> add) {
  try {
    throw;
  } catch (Error& error) {
    // An Error from an event belongs to the event, and other threads may be reading it. Therefore a
    // copy gets the context. An object of a class derived from Error is rethrown unchanged, because
    // a copy would lose the derived part.
    if (typeid(error) != typeid(Error)) {
      if (!error.is_shared()) add(error);
      throw;
    }
  } catch (...) {
  }
  Error wrapped = CurrentError();
  add(wrapped);
  throw wrapped;
}
OPKIT_INLINE void CheckInputDevice(const OperatorDef& def, size_t i, const Tensor& input,
                                   Device memory_device) {
  if (!input.initialized() || MemoryDevice(input.device()) == memory_device) return;
  Throw(ErrorCode::kInvalidArgument, "input ", i, " '", def.inputs()[i], "' is on ", input.device(),
        ", but the operator runs on ", def.device(), "; copy it there first");
}
OPKIT_INLINE void ThrowMutatedStrides(const OperatorDef& def, size_t i, const Tensor& input) {
  throw Error(ErrorCode::kUnsupported,
              StrCat("input ", i, " '", def.inputs()[i], "' of operator ", def.type(),
                     " has strides and cannot be copied, because it is written to; make it "
                     "dense, or follow x.strides() and override AcceptsStrides()"),
              &input);
}
OPKIT_INLINE Tensor OutputTensor(Tensor out, const Shape& shape, DType dtype, Device device,
                                 FunctionRef<bool(const Tensor&)> clobbers) {
  if (MemoryDevice(out.device()) != device || !out.is_dense() || !out.layout().is_standard())
    out = Tensor(device);
  out.SetDevice(device);
  out.Resize(shape, dtype);
  if (clobbers(out)) {
    out = Tensor(device);
    out.Resize(shape, dtype);
  }
  return out;
}
OPKIT_INLINE SpanSink* EndSpanForWork() noexcept {
  SpanSink* const sink = CurrentSpanSink();
  if (!sink || !sink->WantsWork()) return nullptr;
  sink->EndSpan();
  return sink;
}
OPKIT_INLINE void ThrowReturnedFalse() {
  Throw(ErrorCode::kOperatorFailed,
        "RunOnDevice returned false; to say why, throw an opkit::Error or use OPKIT_ENFORCE");
}

}  // namespace detail

OPKIT_INLINE OperatorBase::OperatorBase(const OperatorDef& def, Workspace* ws,
                                        const KernelConfig* config)
    : device_(def.device()),
      memory_device_(MemoryDevice(def.device())),
      workspace_(ws),
      identity_(new detail::OperatorIdentity(def)) {
  if (config) SetConfig(*config);
  if (!ws) Throw(ErrorCode::kInvalidArgument, "operator ", def, " needs a workspace");
  for (const std::string& name : def.inputs()) {
    Blob* blob = name.empty() ? nullptr : ws->FindBlob(name);
    if (!name.empty() && !blob)
      Throw(ErrorCode::kNotFound, "operator ", def, " reads blob '", name,
            "', which is not in the workspace", SuggestName(name, ws->Blobs()),
            "; create it before the operator");
    inputs_.push_back(blob);
  }
  for (const std::string& name : def.outputs())
    outputs_.push_back(name.empty() ? nullptr : ws->CreateBlob(name));
}
OPKIT_INLINE OperatorBase::~OperatorBase() = default;
OPKIT_INLINE void OperatorBase::Cancel() {
  if (event_ && event_->Query() == EventStatus::kScheduled) event_->Cancel();
}

OPKIT_INLINE std::vector<Shape> OperatorBase::InputTensorShapes() const {
  std::vector<Shape> shapes;
  for (int i = 0; i < InputSize(); ++i)
    shapes.push_back(HasInput(i) && InputIsType<Tensor>(i) ? Input<Tensor>(i).shape() : Shape{0});
  return shapes;
}
OPKIT_INLINE std::vector<TensorInfo> OperatorBase::TypesOf(const std::vector<Blob*>& blobs) {
  std::vector<TensorInfo> types;
  for (const Blob* blob : blobs)
    types.push_back(blob && blob->IsType<Tensor>() ? TensorInfo::Of(blob->Get<Tensor>())
                                                   : TensorInfo());
  return types;
}
OPKIT_INLINE Tensor* OperatorBase::OutputTensorCopyFrom(int i, const Tensor& source) {
  Tensor* out = Output(i, source.shape(), source.dtype());
  out->CopyFrom(source);
  return out;
}
OPKIT_INLINE bool OperatorBase::IsInputOutputAlias(int i, int o) const {
  const Blob &in = InputBlob(i), &out = *OutputBlob(o);
  if (&in == &out) return true;
  return in.IsType<Tensor>() && out.IsType<Tensor>() &&
         in.Get<Tensor>().SharesMemoryWith(out.Get<Tensor>());
}

OPKIT_INLINE void OperatorBase::SetConfig(const KernelConfig& config) {
  config_ = detail::MakeIntrusive<const detail::Shared<KernelConfig>>(config);
  has_output_layouts_ = false;
  for (const Layout& layout : config.output_layouts) has_output_layouts_ |= !layout.is_standard();
}
OPKIT_INLINE void OperatorBase::SetScratch(void* bytes, int64_t size, Storage owner) {
  const auto address = reinterpret_cast<uintptr_t>(bytes);
  if (size < 0 || (!bytes && size > 0) || address % 64 != 0)
    Throw(ErrorCode::kInvalidArgument, "SetScratch of operator ", def(), " with ", size,
          " bytes at ", address, "; give it memory aligned to 64 bytes, or null and 0");
  scratch_.Plan(bytes, size, std::move(owner));
}
OPKIT_INLINE void OperatorBase::InternNames() const {
  span_names_ = {InternName(def().type()),
                 InternName(net_position_ >= 0 ? NodeName(def()) : def().name())};
}
OPKIT_INLINE const std::string& OperatorBase::NodeName(const OperatorDef& def) {
  if (def.name().empty())
    for (const std::string& output : def.outputs())
      if (!output.empty()) return output;
  return def.name();
}

OPKIT_INLINE void OperatorBase::DescribeSpan() const noexcept {
  const detail::RunCost& cost = identity_->cost;
  detail::SpanSink* const sink = cost.compute ? detail::EndSpanForWork() : nullptr;
  if (!sink) return;
  try {
    sink->Describe(cost.compute(cost, def(), InputTypes(), OutputTypes()));
  } catch (...) {  // the schema's cost function failed; the run itself succeeded
  }
}

OPKIT_INLINE void OperatorBase::SetRegistration(const char* file, int line, detail::RunCost cost) {
  auto identity = detail::MakeIntrusive<detail::OperatorIdentity>(def());
  identity->cost = cost;
  identity->file = file;
  identity->line = line;
  identity_ = identity;
}

OPKIT_INLINE void OperatorBase::RunRecorded(int) {
  Throw(ErrorCode::kUnsupported, "the runs of operator ", def(), " cannot be recorded");
}
OPKIT_INLINE void OperatorBase::PrepareEvent() {
  const EventStatus status = event().Query();
  if (status == EventStatus::kScheduled)
    Throw(ErrorCode::kFailedPrecondition, "operator ", def(),
          " is run while its last run is still SCHEDULED; Finish its event first");
  if (IsTerminal(status)) event().Reset();
}
namespace detail {
inline bool IsCancelled(const EventState& state) {
  try {
    if (state.status() == EventStatus::kFailed) std::rethrow_exception(state.exception());
  } catch (const Error& error) {
    return error.code() == ErrorCode::kCancelled;
  } catch (...) {
  }
  return false;
}
}  // namespace detail

OPKIT_INLINE void OperatorBase::RetainUntilFinished() {
  EventState* state = event().state().get();  // a raw pointer, because the state owns the callback
  TouchedStorages(state->retained);
  event().SetCallback([state] {
    if (!detail::IsCancelled(*state)) state->retained.clear();
  });
}
OPKIT_INLINE void OperatorBase::FinishWork() noexcept {
  bool drain = event_disabled_ || has_stray_work_;
  if (event_ && !event_disabled_) {
    try {
      if (event_->Query() == EventStatus::kScheduled) event_->Finish();
    } catch (...) {  // the event carries the failure
    }
    drain |= detail::IsCancelled(*event_->state());
  }
  if (!drain) return;
  try {
    SyncDeviceBarrierForObservers();
  } catch (...) {  // the failure belongs to the next event of the stream
  }
}
OPKIT_INLINE void OperatorBase::RethrowWithContext(bool complete_event) {
  try {
    RethrowDescribed();
  } catch (...) {
    if (complete_event) {
      const auto state = event().state();  // a callback may Reset the event
      state->Complete(std::current_exception());
    }
    throw;
  }
}
OPKIT_INLINE void OperatorBase::RethrowDescribed() {
  RecordLastFailedOpNetPosition();
  pending_.Clear();
  detail::RethrowDescribed([this](Error& error) {
    const auto tensors = [](const std::vector<Blob*>& blobs) {
      std::vector<const Tensor*> found;
      for (const Blob* blob : blobs)
        found.push_back(blob && blob->IsType<Tensor>() ? &blob->Get<Tensor>() : nullptr);
      return found;
    };
    detail::AddOperatorContext(error, *identity_, tensors(inputs_), tensors(outputs_));
  });
}
OPKIT_INLINE bool OperatorBase::RunOnDevice() {
  Throw(ErrorCode::kUnsupported, "operator ", type(), " has no RunOnDevice; call Run");
}
OPKIT_INLINE void OperatorBase::TouchedStorages(detail::RefCountedList& out) const {
  out.clear();
  out.reserve(inputs_.size() + outputs_.size());
  for (const auto* blobs : {&inputs_, &outputs_})
    for (const Blob* blob : *blobs)
      if (blob && blob->IsType<Tensor>() && blob->Get<Tensor>().storage())
        out.push_back(blob->Get<Tensor>().storage());
  pending_.AppendStorages(out);
  scratch_.AppendStorages(out);
}

OPKIT_INLINE void OperatorBase::ThrowUnbound(const std::vector<Blob*>& blobs, int i,
                                             const char* what) const {
  Throw(ErrorCode::kOutOfRange, what, " ", i, " was asked for, but the node has ", blobs.size(),
        " ", what, "s",
        detail::Index(i) >= blobs.size() ? ""
        : &blobs == &inputs_
            ? " and leaves that one out (by an empty name, or by an Invoke with a tensor that "
              "has no dtype yet)"
            : " and leaves that one out");
}
OPKIT_INLINE void OperatorBase::ThrowNegativeScratch(int64_t size) const {
  Throw(ErrorCode::kInvalidArgument, "operator ", def(), " asks for ", size, " bytes of scratch");
}
OPKIT_INLINE void OperatorBase::CheckDeclared(std::string_view name) const {
  const detail::ArgumentCheck& checked = detail::t_argument_check;
  if (checked.schema) checked.refuse(*checked.schema, type(), name);
}
OPKIT_INLINE const Attribute* OperatorBase::FindArgument(std::string_view name) const {
  CheckDeclared(name);
  return def().args().Find(name);
}
OPKIT_INLINE const Attribute* OperatorBase::FindDefault(std::string_view name) const {
  const OpSchema* const known = identity_->cost.schema;
  const OpSchema* const schema = known ? known : detail::t_argument_check.schema;
  return schema ? detail::DefaultOf(&schema->attributes(), name) : nullptr;
}
OPKIT_INLINE const Tensor& OperatorBase::UnusualInput(int i, const Tensor& tensor) const {
  detail::CheckInputDevice(def(), detail::Index(i), tensor, memory_device_);
  if (const Layout wanted = InputLayout(i);
      tensor.layout() != wanted && tensor.dtype() != DType::kUndefined)
    throw Error(ErrorCode::kUnsupported,
                StrCat("input ", i, " '", def().inputs()[detail::Index(i)], "' of operator ",
                       type(), " is ", tensor, ", but its kernel takes ", wanted,
                       "; Invoke and plans convert, a workspace's tensors are converted by "
                       "ConvertLayout"),
                &tensor);
  return tensor.is_dense() || AcceptsStrides() ? tensor : DenseCopy(i, tensor);
}
OPKIT_INLINE const Tensor& OperatorBase::DenseCopy(int i, const Tensor& tensor,
                                                   CopyTime time) const {
  if (i < 64 && (mutated_inputs_ >> i & 1))
    detail::ThrowMutatedStrides(def(), detail::Index(i), tensor);
  return pending_.DenseInput(i, [&] {
    Tensor dense(tensor.device());
    if (time == CopyTime::kNow)
      dense.CopyFrom(tensor);
    else
      const_cast<OperatorBase*>(this)->CopyDense(tensor, &dense);
    return dense;
  });
}
OPKIT_INLINE void OperatorBase::CopyDense(const Tensor& source, Tensor* dense) {
  dense->CopyFrom(source);
}
OPKIT_INLINE void OperatorBase::CheckDeviceType(int i, const Tensor& tensor,
                                                DeviceType type) const {
  if (!tensor.initialized() || MemoryDevice(tensor.device()).type == MemoryDevice({type, 0}).type)
    return;
  Throw(ErrorCode::kInvalidArgument, "input ", i, " '", def().inputs()[detail::Index(i)],
        "' is on ", tensor.device(), ", but the operator reads it on ", type,
        "; copy it there first");
}
OPKIT_INLINE void OperatorBase::RecordEvent(const char*) {
  Throw(ErrorCode::kUnsupported, "operator ", def(), " has no context to record its event with");
}
OPKIT_INLINE void OperatorBase::SetEventFinishedWithException(const char* error_message) {
  if (event_disabled_) return;
  std::exception_ptr exception = std::current_exception();
  if (!exception)
    exception = std::make_exception_ptr(Error(
        ErrorCode::kOperatorFailed, error_message ? error_message : "failed without a reason"));
  event().SetFinishedWithException(std::move(exception));
}
OPKIT_INLINE bool OperatorBase::ClobbersOutput(int o, const Tensor& out) const {
  for (int other = 0; other < o; ++other) {
    const Blob* const blob = outputs_[detail::Index(other)];
    if (blob && blob != outputs_[detail::Index(o)] && blob->IsType<Tensor>() &&
        blob->Get<Tensor>().SharesMemoryWith(out))
      return true;
  }
  return false;
}
OPKIT_INLINE Tensor* OperatorBase::Replace(int o, Tensor next) {
  if (Tensor* replaced = pending_.Find(o)) return &(*replaced = std::move(next));
  Blob* blob = OutputBlob(o);
  Tensor* out = blob->GetMutable<Tensor>();
  for (const Blob* input : inputs_)
    if (input == blob && out->initialized()) return pending_.Add(o, blob, std::move(next));
  return &(*out = std::move(next));
}
OPKIT_INLINE Tensor* OperatorBase::ResizeOutput(int o, const Tensor& out, const Shape& shape,
                                                DType dtype, Device device) {
  if (const Layout layout = OutputLayout(o); !layout.is_standard()) {
    if (out.layout() == layout && out.dtype() == dtype && out.shape() == shape &&
        out.device() == device && out.initialized() && !Clobbers(o, out))
      return Output(o);
    return Replace(o, detail::g_make_tensor(shape, dtype, layout, device));
  }
  return Replace(o, detail::OutputTensor(out, shape, dtype, device,
                                         [&](const Tensor& next) { return Clobbers(o, next); }));
}
OPKIT_INLINE Tensor* OperatorBase::Output(int i, DeviceType type) {
  Tensor* out = Output(i);
  const Device device = MemoryDevice({type, type == device_.type ? device_.index : 0});
  if (MemoryDevice(out->device()).type == device.type) return out;
  return Replace(i, Tensor(device));
}
OPKIT_INLINE void OperatorBase::MakeEvent() {
  if (event_disabled_)
    Throw(ErrorCode::kFailedPrecondition, "the event of ", def(), " is disabled");
  event_.emplace(device_);
}
#ifndef OPKIT_DEFINITIONS
// Starts the session of the environment variable OPKIT_PROFILE before main, in the compiled
// runtime. It is in this file because every program with operators links it.
namespace {
[[maybe_unused]] const bool kProfileByEnvironment = detail::ProfileByEnvironment();
}
#endif

}}  // namespace opkit

#endif  // OPKIT_OP_IMPL_OPERATOR_BASE_IPP_
