// OperatorBase: an operator bound to the blobs of a workspace, whatever device it runs on. Argument
// access, inputs and outputs, the completion event, errors with their context.
#ifndef OPKIT_OP_OPERATOR_BASE_HPP_
#define OPKIT_OP_OPERATOR_BASE_HPP_

#include <optional>

#include "opkit/device/event.hpp"
#include "opkit/device/invocation.hpp"
#include "opkit/op/inference_cache.hpp"
#include "opkit/op/kernel.hpp"
#include "opkit/op/observer.hpp"
#include "opkit/op/workspace.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// What an operator is called in messages, shared with the events it records, which may outlive it.
class OperatorIdentity final : public FailureContext {
 public:
  explicit OperatorIdentity(const OperatorDef& operator_def) : def(operator_def) {}
  OPKIT_COLD std::string Describe() const override {
    std::string out = "in operator " + ToString(def);
    for (const NamedAttribute& arg : def.args()) out += ", " + arg.name + "=" + ToString(arg.value);
    out += ", on " + ToString(def.device());
    if (!def.engine().empty()) out += ", engine " + def.engine();
    if (line > 0) out += StrCat(", registered at ", file, ":", line);
    return out;
  }
  OperatorDef def;
  std::string file;
  int line = 0;
};

// Where set, the names of the arguments that constructors on this thread read: for CheckOperator.
inline constinit thread_local std::vector<std::string>* t_arguments_read = nullptr;

}  // namespace detail

// Not synchronised: one run at a time. Operators of one workspace may run at the same time when
// they do not write what another reads or writes.
class OperatorBase : public Observable<OperatorBase> {
 public:
  // Binds inputs, which must exist, and outputs, which are made; the configuration chosen for the
  // node, if any, is copied. Error: kNotFound, kInvalidArgument.
  template <class Config = KernelConfig>
  OPKIT_COLD OperatorBase(const OperatorDef& def, Workspace* ws,
                          const std::type_identity_t<Config>* config = nullptr)
      : device_(def.device()), memory_device_(MemoryDevice(def.device())), workspace_(ws) {
    if (config) SetConfig(*config);
    auto identity = detail::MakeIntrusive<detail::OperatorIdentity>(def);
    identity_ = identity;
    if (!ws) Throw(ErrorCode::kInvalidArgument, "operator ", ToString(def), " needs a workspace");
    for (const std::string& name : def.inputs()) {
      Blob* blob = name.empty() ? nullptr : ws->FindBlob(name);
      if (!name.empty() && !blob)
        Throw(ErrorCode::kNotFound, "operator ", ToString(def), " reads blob '", name,
              "', which is not in the workspace", SuggestName(name, ws->Blobs()),
              "; create it before the operator");
      inputs_.push_back(blob);
    }
    for (const std::string& name : def.outputs())
      outputs_.push_back(name.empty() ? nullptr : ws->CreateBlob(name));
  }
  virtual ~OperatorBase() = default;

  // Runs to completion. True, or an Error with the operator as context.
  virtual bool Run(int stream_id = 0) = 0;
  // Issues the work and returns; event() completes with it. What fails while issuing fails the
  // event and is thrown as well. Error (kFailedPrecondition) while the last run is still SCHEDULED.
  virtual bool RunAsync(int stream_id = 0) = 0;
  // Work goes on after RunOnDevice has returned.
  virtual bool HasAsyncPart() const = 0;
  // May be issued before the operators it depends on are done, if those are on its device type.
  virtual bool SupportsAsyncScheduling() const = 0;
  // Work that this operator issues from now on waits for the event; `stream_id` -1 is the stream in
  // use. A FAILED event fails it.
  virtual void WaitEvent(const Event& event, int stream_id = -1) = 0;
  virtual void WaitEvents(const std::vector<const Event*>& events, int stream_id = -1) = 0;
  // Blocks until this operator's stream has drained, so that an observer can measure it.
  virtual void SyncDeviceBarrierForObservers() = 0;
  virtual bool IsStreamFree(int stream_id) const = 0;
  // Fails the event of a run in flight with kCancelled at once; the device finishes what it has
  // begun. Nothing to do for one that is done.
  virtual void Cancel() {
    if (event_ && event_->Query() == EventStatus::kScheduled) event_->Cancel();
  }

  const OperatorDef& def() const { return identity_->def; }
  const std::string& type() const { return def().type(); }
  Device device() const { return device_; }
  Workspace* workspace() const { return workspace_; }

  // Attributes, for constructors. A value of another type is an Error (kTypeMismatch).
  bool HasArgument(std::string_view name) const { return def().args().Has(name); }
  template <class T>
  bool HasSingleArgumentOfType(std::string_view name) const {
    const Attribute* found = def().args().Find(name);
    return found && found->Is<T>();
  }
  template <class T>
  T GetSingleArgument(std::string_view name, const T& fallback) const {
    NoteArgument(name);
    return def().args().Get<T>(name, fallback);
  }
  template <class T>
  std::vector<T> GetRepeatedArgument(std::string_view name,
                                     const std::vector<T>& fallback = {}) const {
    NoteArgument(name);
    return def().args().Get<std::vector<T>>(name, fallback);
  }

  int InputSize() const { return static_cast<int>(inputs_.size()); }
  int OutputSize() const { return static_cast<int>(outputs_.size()); }
  // False for an optional value that the node leaves out.
  bool HasInput(int i) const {
    return i >= 0 && i < InputSize() && inputs_[static_cast<size_t>(i)];
  }
  bool HasOutput(int i) const {
    return i >= 0 && i < OutputSize() && outputs_[static_cast<size_t>(i)];
  }

  // Errors: kOutOfRange, kUninitialized, kTypeMismatch, kInvalidArgument for a tensor on a device
  // that this operator cannot reach.
  const Tensor& Input(int i) const {
    const Tensor& tensor = InputBlob(i).Get<Tensor>();
    if (tensor.device() != memory_device_) [[unlikely]]
      CheckDevice(i, tensor);
    return tensor;
  }
  // A value of any C++ type.
  template <class T>
  const T& Input(int i) const {
    return InputBlob(i).Get<T>();
  }
  template <class T>
  bool InputIsType(int i) const {
    return InputBlob(i).IsType<T>();
  }
  bool InputIsTensorType(int i, DeviceType type) const {
    return InputIsType<Tensor>(i) && Input<Tensor>(i).device().type == type;
  }
  const Blob& InputBlob(int i) const { return *Bound(inputs_, i, "input"); }
  template <class Shapes = std::vector<Shape>>
  Shapes InputTensorShapes() const {
    Shapes shapes;
    for (int i = 0; i < InputSize(); ++i)
      shapes.push_back(HasInput(i) && InputIsType<Tensor>(i) ? Input<Tensor>(i).shape() : Shape{0});
    return shapes;
  }

  // The output as the last run, or an earlier call in this one, left it: for operators that resize
  // it themselves.
  Tensor* Output(int i) {
    if (!pending_.empty()) [[unlikely]]
      if (Tensor* replaced = FindPending(i)) return replaced;
    return OutputBlob(i)->GetMutable<Tensor>();
  }
  // The output with this shape and dtype, dense, on this operator's device; memory of the last run
  // is reused. It never shares memory with an input that the schema does not pair it with. No input
  // is freed or resized by it: where the output is also an input and changes, a new tensor takes
  // its place when RunOnDevice has returned, so that work going on then needs the tensors by value.
  Tensor* Output(int i, const Shape& shape, DType dtype) {
    Tensor* out = Output(i);
    if (out->dtype() == dtype && out->shape() == shape && out->initialized() &&
        out->device() == memory_device_ && out->is_dense() && !Clobbers(i, *out)) [[likely]]
      return out;
    return ResizeOutput(i, *out, shape, dtype);
  }
  template <class T>
  T* Output(int i) {
    return OutputBlob(i)->GetMutable<T>();
  }
  // Caffe2's spelling: another name for Output(i, shape, dtype).
  Tensor* XOutput(int i, const Shape& shape, DType dtype) { return Output(i, shape, dtype); }
  // A tensor to write to, or null for an output that the node leaves out.
  Tensor* OutputTensorOrUndefined(int i) { return HasOutput(i) ? Output(i) : nullptr; }
  // The output with a copy of the elements of `source`; both reachable from the host.
  Tensor* OutputTensorCopyFrom(int i, const Tensor& source) {
    Tensor* out = Output(i, source.shape(), source.dtype());
    out->CopyFrom(source);
    return out;
  }
  // The output becomes `source` itself, sharing its memory.
  Tensor* OutputTensorAlias(int i, const Tensor& source) { return Replace(i, source); }
  void SetOutputTensor(int i, Tensor tensor) { Replace(i, std::move(tensor)); }
  template <class T>
  bool OutputIsType(int i) const {
    return Bound(outputs_, i, "output")->template IsType<T>();
  }
  Blob* OutputBlob(int i) const { return Bound(outputs_, i, "output"); }
  // Judged by memory, not by name.
  bool IsInputOutputAlias(int i, int o) const {
    const Blob &in = InputBlob(i), &out = *OutputBlob(o);
    if (&in == &out) return true;
    return in.IsType<Tensor>() && out.IsType<Tensor>() &&
           in.Get<Tensor>().SharesMemoryWith(out.Get<Tensor>());
  }

  // The completion of the latest RunAsync; INITIALIZED before. Error (kFailedPrecondition) when
  // disabled.
  Event& event() {
    if (event_disabled_)
      Throw(ErrorCode::kFailedPrecondition, "the event of ", ToString(def()), " is disabled");
    if (!event_) event_.emplace(device_);
    return *event_;
  }
  void ResetEvent() {
    if (event_) event_->Reset();
  }
  // For operators inside a chain, whose completion nobody asks for.
  void DisableEvent() { event_disabled_ = true; }
  bool IsEventDisabled() const { return event_disabled_; }
  void Wait(OperatorBase& other, int stream_id = -1) {
    if (!other.IsEventDisabled()) WaitEvent(other.event(), stream_id);
  }
  void Finish(Timeout timeout = {}) {
    if (event_) event_->Finish(timeout);
  }

  // Place in the net, -1 outside one; a failure leaves it in the workspace.
  int net_position() const { return net_position_; }
  void set_net_position(int position) { net_position_ = position; }
  void RecordLastFailedOpNetPosition() {
    if (net_position_ != -1) workspace_->last_failed_op_net_position = net_position_;
  }
  std::string getErrorMsg() const { return "Error from operator: " + Describe(); }

  // The configuration of its kernel that was chosen for this node: layouts, in-place pairs,
  // scratch. Null where none was: everything is as the schema says and in the standard layout.
  const KernelConfig* config() const { return config_; }
  // For operators whose constructor does not take it.
  template <class Config>
  void SetConfig(const Config& config) {
    auto* copy = new detail::Shared<Config>(config);
    config_owner_ = detail::IntrusivePtr<detail::RefCounted>(copy);
    config_ = &copy->value;
  }

  // `size` bytes of the device's memory for the runs from now on, instead of the operator's own. It
  // stays the caller's and must be aligned to 64; other work may write to it between runs. Runs
  // that go on after they were cancelled keep `owner`; without one it must outlive them. Null takes
  // it away.
  void SetScratch(void* bytes, int64_t size, Storage owner = {}) {
    if (size < 0 || (!bytes && size > 0) || reinterpret_cast<uintptr_t>(bytes) % 64 != 0)
      Throw(ErrorCode::kInvalidArgument, "SetScratch of operator ", ToString(def()), " with ", size,
            " bytes at ", reinterpret_cast<uintptr_t>(bytes),
            "; give it memory aligned to 64 bytes, or null and 0");
    planned_scratch_ = bytes;
    planned_scratch_bytes_ = size;
    planned_scratch_owner_ = std::move(owner);
  }
  // At least `size` bytes of the device's memory, undefined at the start of every run: what was
  // planned when that is large enough, else memory of the operator's own that is kept for the next
  // run. Ask once a run: a larger request may end the memory of the one before. Null for 0.
  void* Scratch(int64_t size) {
    if (size > 0 && size <= planned_scratch_bytes_) [[likely]]
      return planned_scratch_;
    return OwnScratch(size);
  }

  // A run infers its outputs' types and shapes by itself, where the inputs are not those of before.
  virtual bool InfersOutputs() const { return false; }
  // What inference says for inputs of these dtypes and shapes, as a plan knows it: runs with such
  // inputs then do not infer. Not for outputs that depend on an input's data. Nothing changes where
  // something is not known. Error: kInvalidArgument for a wrong count.
  template <class Infos = std::span<const TensorInfo>>
  void SetInferredOutputs(const std::type_identity_t<Infos>& inputs,
                          const std::type_identity_t<Infos>& outputs) {
    inference_.Set(def(), inputs, outputs);
  }
  detail::InferenceCache& inference() { return inference_; }

  // For the registry: where the kernel was registered.
  OPKIT_COLD void SetRegistration(const char* file, int line) {
    auto identity = detail::MakeIntrusive<detail::OperatorIdentity>(def());
    identity->file = file;
    identity->line = line;
    identity_ = identity;
  }
  // For the registry: which outputs may share an input's memory (bit i of masks[o]; inputs past 63
  // may not). Without it every output may.
  void SetInplaceMasks(std::vector<uint64_t> masks) { inplace_masks_ = std::move(masks); }
  InvocationKind invocation_kind() const { return invocation_kind_; }

 protected:
  InvocationKind NextInvocationKind() const {
    return CurrentInvocation().id != 0 ? InvocationKind::kSubOperator : invocation_kind_;
  }
  // In operators that outside code brought: what they do is attributed as custom.
  void set_invocation_kind(InvocationKind kind) { invocation_kind_ = kind; }

  // Called in a catch block: rethrows what is in flight as an Error with this operator as context.
  // An Error keeps its type and identity; anything else becomes its cause.
  [[noreturn]] OPKIT_COLD void RethrowWithContext() {
    RecordLastFailedOpNetPosition();
    pending_.clear();
    try {
      throw;
    } catch (Error& error) {
      // One that came through an event is that event's, and others may be reading it: a copy gets
      // the context. A class derived from Error would be cut by copying; then it stays as it is.
      if (typeid(error) != typeid(Error)) {
        if (!error.is_shared()) AddContext(error);
        throw;
      }
      Error copy = error;
      AddContext(copy);
      throw copy;
    } catch (const std::exception& thrown) {
      Error error(ErrorCode::kOperatorFailed, thrown.what());
      error.SetCause(std::current_exception());
      AddContext(error);
      throw error;
    } catch (...) {
      Error error(ErrorCode::kOperatorFailed, "threw something that is not a std::exception");
      error.SetCause(std::current_exception());
      AddContext(error);
      throw error;
    }
  }
  [[noreturn]] OPKIT_COLD static void ReturnedFalse() {
    Throw(ErrorCode::kOperatorFailed,
          "RunOnDevice returned false; to say why, throw an opkit::Error or use OPKIT_ENFORCE");
  }

  // Outputs whose tensor was replaced during the run take their place.
  void PublishOutputs() {
    if (pending_.empty()) [[likely]]
      return;
    for (size_t i = 0; i < pending_.size(); ++i)
      *pending(i).blob->GetMutable<Tensor>() = pending(i).tensor;
    pending_.clear();
  }
  // `out` becomes all memory that this run may touch.
  void TouchedStorages(detail::RefCountedList& out) const {
    out.clear();
    for (const auto* blobs : {&inputs_, &outputs_})
      for (const Blob* blob : *blobs)
        if (blob && blob->IsType<Tensor>() && blob->Get<Tensor>().storage())
          out.push_back(blob->Get<Tensor>().storage());
    for (size_t i = 0; i < pending_.size(); ++i) out.push_back(pending(i).tensor.storage());
    if (scratch_) out.push_back(scratch_);
    if (planned_scratch_owner_) out.push_back(planned_scratch_owner_);
  }
  detail::IntrusivePtr<const detail::FailureContext> failure_context() const { return identity_; }

 private:
  struct Pending : detail::RefCounted {
    int output = 0;
    Blob* blob = nullptr;
    Tensor tensor;
  };
  Pending& pending(size_t i) const { return static_cast<Pending&>(*pending_[i]); }

  template <class Blobs>
  Blob* Bound(const Blobs& blobs, int i, const char* what) const {
    if (i < 0 || static_cast<size_t>(i) >= blobs.size() || !blobs[static_cast<size_t>(i)])
        [[unlikely]]
      Throw(ErrorCode::kOutOfRange, what, " ", i, " was asked for, but the node has ", blobs.size(),
            " ", what, "s",
            static_cast<size_t>(i) >= blobs.size() ? ""
            : &blobs == &inputs_
                ? " and leaves that one out (by an empty name, or by an Invoke with a tensor that "
                  "has no dtype yet)"
                : " and leaves that one out");
    return blobs[static_cast<size_t>(i)];
  }
  static void NoteArgument(std::string_view name) {
    if (detail::t_arguments_read) [[unlikely]]
      detail::t_arguments_read->emplace_back(name);
  }
  OPKIT_COLD void CheckDevice(int i, const Tensor& tensor) const {
    if (!tensor.initialized() || MemoryDevice(tensor.device()) == memory_device_) return;
    Throw(ErrorCode::kInvalidArgument, "input ", i, " '", def().inputs()[static_cast<size_t>(i)],
          "' is on ", ToString(tensor.device()), ", but the operator runs on ", ToString(device_),
          "; copy it there first");
  }
  // Writing to `out` would overwrite an input that it does not share memory with by right: where
  // the schema pairs the two, element i of both must still be at one place.
  bool Clobbers(int o, const Tensor& out) const {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Blob* blob = inputs_[i];
      if (!blob || !blob->IsType<Tensor>()) continue;
      const Tensor& in = blob->Get<Tensor>();
      if (!in.SharesMemoryWith(out)) continue;
      if (!MayShare(i, o) || in.raw_data() != out.raw_data() || !in.is_dense()) return true;
    }
    return false;
  }
  bool MayShare(size_t i, int o) const {
    if (inplace_masks_.empty()) return true;  // built without a schema
    if (!config_ && inputs_[i] == outputs_[static_cast<size_t>(o)])
      return true;  // verified with the node
    return i < 64 && (inplace_masks_[static_cast<size_t>(o)] >> i & 1);
  }
  Tensor* FindPending(int o) const {
    for (size_t i = 0; i < pending_.size(); ++i)
      if (pending(i).output == o) return &pending(i).tensor;
    return nullptr;
  }
  // The output becomes `next`: at once, or at the end of the run where an input would change.
  OPKIT_COLD Tensor* Replace(int o, Tensor next) {
    if (Tensor* replaced = FindPending(o)) return &(*replaced = std::move(next));
    Blob* blob = OutputBlob(o);
    Tensor* out = blob->GetMutable<Tensor>();
    bool is_input = false;
    for (const Blob* input : inputs_) is_input |= input == blob;
    if (!is_input || !out->initialized()) return &(*out = std::move(next));
    auto* replacement = new Pending;
    pending_.push_back(detail::IntrusivePtr<detail::RefCounted>(replacement));
    replacement->output = o;
    replacement->blob = blob;
    replacement->tensor = std::move(next);
    return &replacement->tensor;
  }
  OPKIT_COLD Tensor* ResizeOutput(int o, const Tensor& out, const Shape& shape, DType dtype) {
    Tensor next = out;
    if (MemoryDevice(next.device()) != memory_device_ || !next.is_dense())
      next = Tensor(memory_device_);
    next.SetDevice(memory_device_);
    next.Resize(shape, dtype);
    if (Clobbers(o, next)) {
      next = Tensor(memory_device_);
      next.Resize(shape, dtype);
    }
    return Replace(o, std::move(next));
  }
  void* OwnScratch(int64_t size) {
    if (size < 0)
      Throw(ErrorCode::kInvalidArgument, "operator ", ToString(def()), " asks for ", size,
            " bytes of scratch");
    if (size == 0) return nullptr;
    if (!scratch_ || scratch_->nbytes() < size) scratch_ = AllocateStorage(memory_device_, size);
    return scratch_->data();
  }
  OPKIT_COLD std::string Describe() const { return identity_->Describe(); }
  OPKIT_COLD void AddContext(Error& error) const {
    auto name = [&](const std::vector<Blob*>& blobs, const char* what) {
      for (size_t i = 0; i < blobs.size(); ++i)
        if (error.subject() && blobs[i] && blobs[i]->IsType<Tensor>() &&
            &blobs[i]->Get<Tensor>() == error.subject())
          error.AddContext(StrCat("while accessing ", what, " ", i, " '", blobs[i]->name(), "'"));
    };
    name(inputs_, "input");
    if (error.context().empty()) name(outputs_, "output");
    bool described = false;  // by the event that it came through
    for (const std::string& line : error.context()) described |= line == Describe();
    if (!described) error.AddContext(Describe());
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i] && inputs_[i]->IsType<Tensor>())
        error.AddContext(
            StrCat("  input ", i, " '", inputs_[i]->name(), "': ", inputs_[i]->Get<Tensor>()));
  }

  // What every run reads comes first, in one cache line with the observers.
  InvocationKind invocation_kind_ = InvocationKind::kOperator;
  bool event_disabled_ = false;
  int net_position_ = -1;
  detail::RefCountedList pending_;  // of Pending
  Device device_;
  Device memory_device_;
  Workspace* workspace_;
  std::vector<Blob*> inputs_, outputs_;  // null where the node leaves one out
  std::vector<uint64_t> inplace_masks_;
  const KernelConfig* config_ = nullptr;
  detail::IntrusivePtr<detail::RefCounted> config_owner_;
  detail::InferenceCache inference_;
  void* planned_scratch_ = nullptr;
  int64_t planned_scratch_bytes_ = 0;
  Storage planned_scratch_owner_;
  Storage scratch_;  // of its own
  detail::IntrusivePtr<const detail::OperatorIdentity> identity_;
  std::optional<Event> event_;
};

}  // namespace opkit

#endif  // OPKIT_OP_OPERATOR_BASE_HPP_
