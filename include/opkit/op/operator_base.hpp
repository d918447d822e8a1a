// OperatorBase: an operator bound to the blobs of a workspace, whatever device it runs on. Gives
// access to arguments, inputs and outputs and the completion event, and adds context to errors.
#ifndef OPKIT_OP_OPERATOR_BASE_HPP_
#define OPKIT_OP_OPERATOR_BASE_HPP_

#include <optional>

#include "opkit/base/index.hpp"
#include "opkit/device/event.hpp"
#include "opkit/device/invocation.hpp"
#include "opkit/op/kernel.hpp"
#include "opkit/op/observer.hpp"
#include "opkit/op/workspace.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Tensors of the run in progress beside those of the blobs: for outputs whose present tensor is
// also an input, which the run still reads, and dense copies of inputs that have strides.
class PendingTensors {
 public:
  bool empty() const { return !items_; }
  // The tensor that replaces the output's; null when none does. The tensors stay at their
  // addresses.
  Tensor* Find(int output);
  Tensor* Add(int output, Blob* blob, Tensor tensor);
  // The copy of an input, made by `make` in the first call under the current invocation.
  const Tensor& DenseInput(int input, FunctionRef<Tensor()> make);
  // Moves the outputs to their blobs, and lets go of the copies.
  void Publish();
  void Clear() {
    if (items_) [[unlikely]]
      items_ = {};
  }
  void AppendStorages(RefCountedList& out) const;

 private:
  struct Items;
  Items& items();
  IntrusivePtr<RefCounted> items_;  // Items, made with the first
};

// The memory that a plan sets aside for the operator, or memory of its own that grows to the
// largest request.
class ScratchMemory {
 public:
  void Plan(void* bytes, int64_t size, Storage owner);
  void* Take(int64_t size, Device device) {
    return size > 0 && size <= planned_bytes_ ? planned_ : TakeOwn(size, device);
  }
  void AppendStorages(RefCountedList& out) const;

 private:
  void* TakeOwn(int64_t size, Device device);

  void* planned_ = nullptr;
  int64_t planned_bytes_ = 0;
  Storage planned_owner_;
  Storage own_;
};

// What a run of an operator has worked on, which its schema tells, and whose kernel it is: schemas
// and kernels are none of this header's.
struct WorkOfRun {
  const OpSchema* schema = nullptr;
  const std::string* backend = nullptr;
  SpanWork (*tell)(const WorkOfRun& work, const OperatorDef& def,
                   const std::vector<TensorInfo>& inputs,
                   const std::vector<TensorInfo>& outputs) = nullptr;
};

// The name of an operator in messages, shared with the events it records, which may outlive it.
class OperatorIdentity final : public FailureContext {
 public:
  explicit OperatorIdentity(const OperatorDef& operator_def) : def(operator_def) {}
  OPKIT_INLINE std::string Describe() const override;
  OperatorDef def;
  std::string file;
  int line = 0;
  WorkOfRun work;
};

// Adds to an error which value it is about, which operator failed, and what its inputs were; null
// for a value that is no tensor, or that the node leaves out.
OPKIT_COLD void AddOperatorContext(Error& error, const OperatorIdentity& identity,
                                   const std::vector<const Tensor*>& inputs,
                                   const std::vector<const Tensor*>& outputs);
// Called in a catch block: throws the exception in flight as an Error to which `add` has added. An
// Error keeps its type and identity; any other exception becomes the Error's cause.
[[noreturn]] OPKIT_COLD void RethrowDescribed(FunctionRef<void(Error&)> add);
// Error (kInvalidArgument) where an input's memory is not that of `memory_device`.
OPKIT_COLD void CheckInputDevice(const OperatorDef& def, size_t i, const Tensor& input,
                                 Device memory_device);
// The Error (kUnsupported) of an input that has strides and that the node writes to.
[[noreturn]] OPKIT_COLD void ThrowMutatedStrides(const OperatorDef& def, size_t i,
                                                 const Tensor& input);
// A tensor for an output: in the memory of `out` where that is dense, on `device` and large enough,
// and otherwise, or where `clobbers` says that writing to it would change an input or another
// output, in new memory.
OPKIT_COLD Tensor OutputTensor(Tensor out, const Shape& shape, DType dtype, Device device,
                               FunctionRef<bool(const Tensor&)> clobbers);
// Ends the span that began last on this thread, where a profile wants to know its work. Returns
// that profile's sink, null where none does.
SpanSink* EndSpanForWork() noexcept;
// The Error (kOperatorFailed) of a run that says false.
[[noreturn]] OPKIT_COLD void ThrowReturnedFalse();

// Refuses the arguments that the schema of the operator that this thread constructs does not
// declare. CreateOperator sets it: schemas are none of this header's.
struct ArgumentCheck {
  const OpSchema* schema = nullptr;
  void (*refuse)(const OpSchema& schema, const std::string& type, std::string_view name) = nullptr;
};
inline constinit thread_local ArgumentCheck t_argument_check;

}  // namespace detail

// Not synchronised: one run at a time. Operators of one workspace may run at the same time when
// they do not write what another reads or writes.
class OperatorBase : public Observable<OperatorBase> {
 public:
  // Binds inputs, which must exist, and outputs, which are made; the configuration chosen for the
  // node, if any, is copied. Error: kNotFound, kInvalidArgument.
  OperatorBase(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr);
  OPKIT_INLINE virtual ~OperatorBase();

  // Runs to completion. Returns true, or throws an Error with the operator as context.
  virtual bool Run(int stream_id = 0) = 0;
  // Issues the work and returns; event() completes with it. A failure while issuing fails the event
  // and is thrown as well. Error (kFailedPrecondition) while the last run is still SCHEDULED.
  virtual bool RunAsync(int stream_id = 0) = 0;
  // The operator's work. Classes that derive from OperatorBase itself may do theirs in Run.
  // Error: kUnsupported.
  OPKIT_INLINE virtual bool RunOnDevice();
  // Whether Run is RunOnDevice on the calling thread and no more: no stream, nothing that goes on.
  virtual bool RunsDirectly() const { return false; }
  // Run of such an operator, under the caller's invocation: a plan opens one scope for many.
  void RunDirectly() {
    ObserverScope<OperatorBase> observers(*this);
    try {
      if (!RunOnDevice()) [[unlikely]]
        detail::ThrowReturnedFalse();
      PublishOutputs();
    } catch (...) {
      RethrowWithContext();
    }
    observers.Succeeded();
  }
  // Whether RunOnDevice follows the strides of its inputs. Otherwise they are dense in it, as those
  // of functions are: see Input.
  virtual bool AcceptsStrides() const { return false; }
  // Whether work goes on after RunOnDevice has returned.
  virtual bool HasAsyncPart() const = 0;
  // Whether it may be issued before the operators that it depends on are done, if those are on its
  // device type.
  virtual bool SupportsAsyncScheduling() const = 0;
  // The event is SCHEDULED and completes with the work issued so far; with a message it is FAILED
  // at once. Nothing where the event is disabled. Error (kUnsupported) of a class without a
  // context.
  OPKIT_INLINE virtual void RecordEvent(const char* error_message = nullptr);
  // Work that this operator issues from now on waits for the event; `stream_id` -1 is the stream in
  // use. A FAILED event fails it.
  virtual void WaitEvent(const Event& event, int stream_id = -1) = 0;
  virtual void WaitEvents(const std::vector<const Event*>& events, int stream_id = -1) = 0;
  // Blocks until this operator's stream has drained, so that an observer can measure it.
  virtual void SyncDeviceBarrierForObservers() = 0;
  virtual bool IsStreamFree(int stream_id) const = 0;
  // Fails the event of a run in flight with kCancelled at once; the device finishes what it has
  // begun. A run that is done is left as it is.
  OPKIT_INLINE virtual void Cancel();

  const OperatorDef& def() const { return identity_->def; }
  // Whose kernel it is, "eigen"; empty for an operator that its program made without a kernel.
  std::string backend() const {
    return identity_->work.backend ? *identity_->work.backend : std::string();
  }
  // Caffe2's spellings: every operator has its definition.
  const OperatorDef& debug_def() const { return def(); }
  static constexpr bool has_debug_def() { return true; }
  const std::string& type() const { return def().type(); }
  Device device() const { return device_; }
  Workspace* workspace() const { return workspace_; }

  // The following read attributes, in constructors. Errors: kTypeMismatch for a value of another
  // type; kInvalidArgument, with the nearest name, for one that the operator's schema does not
  // declare.
  bool HasArgument(std::string_view name) const { return FindArgument(name); }
  template <class T>
  bool HasSingleArgumentOfType(std::string_view name) const {
    const Attribute* found = FindArgument(name);
    return found && found->Is<T>();
  }
  template <class T>
  T GetSingleArgument(std::string_view name, const T& fallback) const {
    CheckDeclared(name);
    return def().args().Get<T>(name, fallback);
  }
  template <class T>
  std::vector<T> GetRepeatedArgument(std::string_view name,
                                     const std::vector<T>& fallback = {}) const {
    CheckDeclared(name);
    return def().args().Get<std::vector<T>>(name, fallback);
  }

  // The spelling of InferenceContext. Without a fallback kNotFound where the node does not give it.
  template <class T>
  T Arg(std::string_view name, T fallback) const {
    CheckDeclared(name);
    return def().args().Get<T>(name, std::move(fallback));
  }
  template <class T>
  T Arg(std::string_view name) const {
    CheckDeclared(name);
    return def().args().Get<T>(name);
  }

  int InputSize() const { return static_cast<int>(inputs_.size()); }
  int OutputSize() const { return static_cast<int>(outputs_.size()); }
  // False for an optional value that the node leaves out.
  bool HasInput(int i) const { return i >= 0 && i < InputSize() && inputs_[detail::Index(i)]; }
  bool HasOutput(int i) const { return i >= 0 && i < OutputSize() && outputs_[detail::Index(i)]; }

  // The input; a dense copy of one that has strides, unless the operator AcceptsStrides(). A copy
  // is made once a run, on the device's stream, and lasts as long as the run and its work: ask in
  // RunOnDevice, not in a body that runs later. Errors: kOutOfRange, kUninitialized, kTypeMismatch,
  // kInvalidArgument for a tensor on a device that this operator cannot reach, kUnsupported where
  // no copy can be made: the schema says that the input is written to, or the device copies no
  // strides.
  __attribute__((always_inline)) const Tensor& Input(int i) const {
    const Tensor& tensor = InputBlob(i).Get<Tensor>();
    if (tensor.device() != memory_device_ || tensor.has_strides() || !tensor.layout().is_standard())
        [[unlikely]]
      return UnusualInput(i, tensor);
    return tensor;
  }
  // The same on a device of another type than this operator's: a size that the host reads, say. A
  // copy is there at once.
  const Tensor& Input(int i, DeviceType type) const {
    const Tensor& tensor = InputBlob(i).Get<Tensor>();
    CheckDeviceType(i, tensor, type);
    return tensor.is_dense() || AcceptsStrides() ? tensor : DenseCopy(i, tensor, true);
  }
  // The input dense, for operators that accept the strides of others.
  const Tensor& DenseInput(int i) const {
    const Tensor& tensor = Input(i);
    return tensor.is_dense() ? tensor : DenseCopy(i, tensor);
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
  std::vector<Shape> InputTensorShapes() const;
  // Dtypes and shapes as they are now; unknown for one that is left out or no tensor.
  std::vector<TensorInfo> InputTypes() const { return TypesOf(inputs_); }
  std::vector<TensorInfo> OutputTypes() const { return TypesOf(outputs_); }

  // The output as the last run, or an earlier call in this one, left it: for operators that resize
  // it themselves.
  Tensor* Output(int i) {
    if (!pending_.empty()) [[unlikely]]
      if (Tensor* replaced = pending_.Find(i)) return replaced;
    return OutputBlob(i)->GetMutable<Tensor>();
  }
  // The output with this shape and dtype, dense, on this operator's device; memory of the last run
  // is reused. It never shares memory with an input that the schema does not pair it with. No input
  // is freed or resized by it: where the output is also an input and changes, a new tensor takes
  // its place when RunOnDevice has returned, so that work going on then needs the tensors by value.
  Tensor* Output(int i, const Shape& shape, DType dtype) {
    return OutputIn(memory_device_, i, shape, dtype);
  }
  // The same on another device.
  Tensor* Output(int i, const Shape& shape, DType dtype, Device device) {
    return OutputIn(MemoryDevice(device), i, shape, dtype);
  }
  // As Output(i), on a device of this type: a new tensor where it was left on another.
  Tensor* Output(int i, DeviceType type);
  template <class T>
  T* Output(int i) {
    return OutputBlob(i)->GetMutable<T>();
  }
  // Caffe2's spellings: other names for Output(i, shape, dtype).
  Tensor* XOutput(int i, const Shape& shape, DType dtype) { return Output(i, shape, dtype); }
  Tensor* OutputTensor(int i, const Shape& shape, DType dtype) { return Output(i, shape, dtype); }
  Tensor* OutputTensor(int i, const Shape& shape, DType dtype, Device device) {
    return Output(i, shape, dtype, device);
  }
  // A tensor to write to, or null for an output that the node leaves out.
  Tensor* OutputTensorOrUndefined(int i) { return HasOutput(i) ? Output(i) : nullptr; }
  // The output with a copy of the elements of `source`; both reachable from the host.
  Tensor* OutputTensorCopyFrom(int i, const Tensor& source);
  // The output becomes `source` itself, sharing its memory.
  Tensor* OutputTensorAlias(int i, const Tensor& source) { return Replace(i, source); }
  void SetOutputTensor(int i, Tensor tensor) { Replace(i, std::move(tensor)); }
  template <class T>
  bool OutputIsType(int i) const {
    return Bound(outputs_, i, "output")->template IsType<T>();
  }
  Blob* OutputBlob(int i) const {
    has_taken_outputs_ = true;
    return Bound(outputs_, i, "output");
  }
  // Whether anybody has ever asked for an output to write to: one that was never asked for is where
  // the plan has put it.
  bool HasTakenOutputs() const { return has_taken_outputs_; }
  // Whether the two share memory, whatever their names are.
  bool IsInputOutputAlias(int i, int o) const;

  // The completion of the latest RunAsync; INITIALIZED before. Error (kFailedPrecondition) when
  // disabled.
  Event& event() {
    if (event_disabled_ || !event_) [[unlikely]]
      MakeEvent();
    return *event_;
  }
  void ResetEvent() {
    if (event_) event_->Reset();
  }
  // For an operator whose work goes on elsewhere: ends the event of the run, well, with a message,
  // or with the exception being handled (with the message where there is none). Nothing where the
  // event is disabled.
  void SetEventFinished(const char* error_message = nullptr);
  void SetEventFinishedWithException(const char* error_message = nullptr);
  // Saves the event of an operator inside a chain, whose completion is never awaited.
  void DisableEvent() { event_disabled_ = true; }
  bool IsEventDisabled() const { return event_disabled_; }
  // For executors: EventState::SetSeldomAsked of the events of all runs.
  void SetEventSeldomAsked() { event_seldom_asked_ = true; }
  bool IsEventSeldomAsked() const { return event_seldom_asked_; }
  void Wait(OperatorBase& other, int stream_id = -1) {
    if (!other.IsEventDisabled()) WaitEvent(other.event(), stream_id);
  }
  void Finish(Timeout timeout = {}) {
    if (event_) event_->Finish(timeout);
  }

  // The operator's place in the net, -1 outside one; a failure leaves it in the workspace.
  int net_position() const { return net_position_; }
  void set_net_position(int position) { net_position_ = position; }
  void RecordLastFailedOpNetPosition() {
    if (net_position_ != -1) workspace_->last_failed_op_net_position = net_position_;
  }
  std::string getErrorMsg() const { return "Error from operator: " + Describe(); }

  // The configuration of its kernel that was chosen for this node: layouts, in-place pairs,
  // scratch. Null where none was chosen: everything is as the schema says and in the standard
  // layout.
  const KernelConfig* config() const { return config_ ? &config_->value : nullptr; }
  // The layouts that it gives an input and an output; the standard one where it gives none.
  Layout InputLayout(int i) const;
  Layout OutputLayout(int o) const;
  // Sets the configuration of an operator whose constructor does not take it.
  void SetConfig(const KernelConfig& config);

  // Gives the runs from now on `size` bytes of the device's memory as scratch, instead of the
  // operator's own. It stays the caller's and must be aligned to 64; other work may write to it
  // between runs. Runs that go on after they were cancelled keep `owner`; without one it must
  // outlive them. Null takes it away.
  void SetScratch(void* bytes, int64_t size, Storage owner = {});
  // At least `size` bytes of the device's memory, undefined at the start of every run: the planned
  // memory when it is large enough, else memory of the operator's own that is kept for the next
  // run. Ask once a run: a larger request may end the memory of the one before. Null for 0.
  void* Scratch(int64_t size) {
    if (size < 0) [[unlikely]]
      ThrowNegativeScratch(size);
    return scratch_.Take(size, memory_device_);
  }

  // True when a run infers its outputs' types and shapes itself wherever the inputs' have changed.
  virtual bool InfersOutputs() const { return false; }
  // Takes over the types that a plan has inferred: runs with inputs of these dtypes and shapes then
  // do not infer, unless `lacks_data` says that inference asked for data that a run alone has:
  // those infer again, and fail where the data contradicts `outputs`. Nothing changes where a dtype
  // or shape is not known, or where runs do not infer. Error: kInvalidArgument for a wrong count.
  void SetInferredOutputs(std::span<const TensorInfo> inputs, std::span<const TensorInfo> outputs,
                          bool lacks_data = false) {
    if (InfersOutputs()) inference_.Set(def(), inputs, outputs, lacks_data);
  }
  detail::InferenceCache& inference() { return inference_; }

  // The registry says where the kernel was registered.
  void SetRegistration(const char* file, int line, detail::WorkOfRun work = {});
  // The registry says which outputs may share an input's memory (bit i of masks[o]; inputs past 63
  // may not). Without it every output may.
  void SetInplaceMasks(std::vector<uint64_t> masks) { inplace_masks_ = std::move(masks); }
  // The registry says which inputs the operator writes to (bit i; inputs past 63 are not told of).
  void SetMutatedInputs(uint64_t mask) { mutated_inputs_ = mask; }
  InvocationKind invocation_kind() const { return invocation_kind_; }
  // What a profile calls a node: its name, or that of its first output.
  static const std::string& NodeName(const OperatorDef& def);
  // What a profile calls its runs.
  SpanNames span_names() const {
    if (span_names_.name == 0) [[unlikely]]
      InternNames();
    return span_names_;
  }

 protected:
  // Operators of loaded libraries and functions call it, so that their work is attributed as
  // custom.
  void set_invocation_kind(InvocationKind kind) { invocation_kind_ = kind; }

  // For the destructor of a class whose work goes on and uses its members: returns when the work of
  // the latest run is done, well or not; at once where nothing goes on. It waits after Cancel too,
  // as a stream still runs what it has begun: not on the stream's own thread. A thread that the
  // class has started is the class's to join.
  void FinishWork() noexcept;
  // Work was issued that no event tells of.
  void SetStrayWork() { has_stray_work_ = true; }

  // Makes the event INITIALIZED for a new run. Error (kFailedPrecondition) while it is SCHEDULED.
  void PrepareEvent();
  // Keeps the memory of work that goes on elsewhere until that work finishes the event. A cancelled
  // event is not finished; its memory stays as long as a handle of the event.
  void RetainUntilFinished();
  // Called in a catch block: rethrows the exception in flight as an Error with this operator as
  // context; with `complete_event` the event fails with that Error. An Error keeps its type and
  // identity; any other exception becomes the Error's cause.
  [[noreturn]] OPKIT_COLD void RethrowWithContext(bool complete_event = false);

  // Tells the profile of the run's work, if it wants to know.
  OPKIT_COLD void DescribeSpan() const noexcept;

  // Moves the tensors that replace outputs of this run to their blobs.
  void PublishOutputs() {
    if (!pending_.empty()) [[unlikely]]
      pending_.Publish();
  }
  // Makes `dense` a dense copy of `source`; on the context's stream where work goes on there.
  OPKIT_INLINE virtual void CopyDense(const Tensor& source, Tensor* dense);
  // Fills `out` with the storages that this run may touch.
  void TouchedStorages(detail::RefCountedList& out) const;
  detail::IntrusivePtr<const detail::FailureContext> failure_context() const { return identity_; }

 private:
  Blob* Bound(const std::vector<Blob*>& blobs, int i, const char* what) const {
    if (detail::Index(i) >= blobs.size() || !blobs[detail::Index(i)]) [[unlikely]]
      ThrowUnbound(blobs, i, what);
    return blobs[detail::Index(i)];
  }
  [[noreturn]] OPKIT_COLD void ThrowUnbound(const std::vector<Blob*>& blobs, int i,
                                            const char* what) const;
  [[noreturn]] OPKIT_COLD void ThrowNegativeScratch(int64_t size) const;
  OPKIT_COLD void CheckDeclared(std::string_view name) const;
  OPKIT_COLD const Attribute* FindArgument(std::string_view name) const;
  OPKIT_COLD const Tensor& UnusualInput(int i, const Tensor& tensor) const;
  OPKIT_COLD const Tensor& DenseCopy(int i, const Tensor& tensor, bool at_once = false) const;
  void CheckDeviceType(int i, const Tensor& tensor, DeviceType type) const;
  // Writing to `out` would overwrite an input that it does not share memory with by right: where
  // the schema pairs the two, element i of both must still be at one place. Or it would overwrite
  // an output before it.
  bool Clobbers(int o, const Tensor& out) const {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Blob* blob = inputs_[i];
      if (!blob || !blob->IsType<Tensor>()) continue;
      const Tensor& in = blob->Get<Tensor>();
      if (!in.SharesMemoryWith(out)) continue;
      if (!MayShare(i, o) || in.raw_data() != out.raw_data() || !in.is_dense()) return true;
    }
    return o > 0 && ClobbersOutput(o, out);
  }
  bool ClobbersOutput(int o, const Tensor& out) const;
  bool MayShare(size_t i, int o) const {
    if (inplace_masks_.empty()) return true;  // built without a schema
    if (!config_ && inputs_[i] == outputs_[detail::Index(o)])
      return true;  // verified with the node
    return i < 64 && (inplace_masks_[detail::Index(o)] >> i & 1);
  }
  // The output with this shape and dtype in the memory of `device`.
  Tensor* OutputIn(Device device, int i, const Shape& shape, DType dtype) {
    Tensor* out = Output(i);
    if (out->dtype() == dtype && out->shape() == shape && out->initialized() &&
        out->device() == device && out->is_dense() && out->layout().is_standard() &&
        !has_output_layouts_ && !Clobbers(i, *out)) [[likely]]
      return out;
    return ResizeOutput(i, *out, shape, dtype, device);
  }
  // Makes `next` the output: at once, or at the end of the run where an input would change.
  OPKIT_COLD Tensor* Replace(int o, Tensor next);
  OPKIT_COLD Tensor* ResizeOutput(int o, const Tensor& out, const Shape& shape, DType dtype,
                                  Device device);
  OPKIT_COLD void MakeEvent();
  OPKIT_COLD void InternNames() const;
  OPKIT_COLD static std::vector<TensorInfo> TypesOf(const std::vector<Blob*>& blobs);
  [[noreturn]] OPKIT_COLD void RethrowDescribed();
  std::string Describe() const { return identity_->Describe(); }

  // The members that every run reads come first, in one cache line with the observers.
  InvocationKind invocation_kind_ = InvocationKind::kOperator;
  bool event_disabled_ = false;
  bool event_seldom_asked_ = false;
  bool has_stray_work_ = false;
  mutable bool has_taken_outputs_ = false;
  bool has_output_layouts_ = false;  // other than the standard one, by the configuration
  int net_position_ = -1;
  mutable detail::PendingTensors pending_;
  Device device_;
  Device memory_device_;
  Workspace* workspace_;
  std::vector<Blob*> inputs_, outputs_;  // null where the node leaves one out
  std::vector<uint64_t> inplace_masks_;
  uint64_t mutated_inputs_ = 0;
  detail::IntrusivePtr<const detail::Shared<KernelConfig>> config_;
  detail::InferenceCache inference_;
  detail::ScratchMemory scratch_;
  detail::IntrusivePtr<const detail::OperatorIdentity> identity_;
  std::optional<Event> event_;
  mutable SpanNames span_names_;  // once they were asked for
};

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/impl/operator_base.ipp"
#endif

#endif  // OPKIT_OP_OPERATOR_BASE_HPP_
