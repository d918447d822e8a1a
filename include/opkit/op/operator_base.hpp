// OperatorBase: an operator bound to the blobs of a workspace, on any device. Gives access to
// arguments, inputs, outputs and the completion event, and adds context to errors.
#ifndef OPKIT_OP_OPERATOR_BASE_HPP_
#define OPKIT_OP_OPERATOR_BASE_HPP_

#include <optional>

#include "opkit/base/index.hpp"
#include "opkit/device/event.hpp"
#include "opkit/device/invocation.hpp"
#include "opkit/op/kernel.hpp"
#include "opkit/op/observer.hpp"
#include "opkit/op/workspace.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Tensors of the current run that are not in blobs. They are dense copies of strided inputs, and
// new output tensors: an output gets one if its present tensor is also an input that the run still
// reads.
class PendingTensors {
 public:
  bool empty() const { return !items_; }
  // Returns the tensor that replaces the output's tensor; null if no tensor replaces it. The
  // address stays valid until Publish or Clear.
  Tensor* Find(int output);
  Tensor* Add(int output, Blob* blob, Tensor tensor);
  // Returns the dense copy of an input. The first call under the current invocation makes it by
  // `make`.
  const Tensor& DenseInput(int input, FunctionRef<Tensor()> make);
  // Moves the outputs to their blobs and releases the copies.
  void Publish();
  void Clear() {
    if (items_) [[unlikely]]
      items_ = {};
  }
  void AppendStorages(RefCountedList& out) const;

 private:
  struct Items;
  Items& items();
  IntrusivePtr<RefCounted> items_;  // Items, made with the first tensor
};

// The scratch memory of an operator: memory that a plan reserves, or its own memory, which grows to
// the largest request.
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

// Schema and backend of a run, for the profiler. Pointers, so that this header needs neither class.
// `compute` computes the work of a run; null if the work is unknown.
struct RunCost {
  const OpSchema* schema = nullptr;
  const std::string* backend = nullptr;
  SpanWork (*compute)(const RunCost& cost, const OperatorDef& def,
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
  RunCost cost;
};

// Adds context to an error: the value that caused it, the failed operator, and the operator's
// inputs. A pointer is null for a value that is no tensor or is left out.
OPKIT_COLD void AddOperatorContext(Error& error, const OperatorIdentity& identity,
                                   const std::vector<const Tensor*>& inputs,
                                   const std::vector<const Tensor*>& outputs);
// Throws the exception in flight as an Error, after `add` has added context; for use in a catch
// block. An Error keeps its type and identity; any other exception becomes the Error's cause.
[[noreturn]] OPKIT_COLD void RethrowDescribed(FunctionRef<void(Error&)> add);
// Throws kInvalidArgument if an input's memory is not that of `memory_device`.
OPKIT_COLD void CheckInputDevice(const OperatorDef& def, size_t i, const Tensor& input,
                                 Device memory_device);
// Throws kUnsupported for a strided input that the node writes to.
[[noreturn]] OPKIT_COLD void ThrowMutatedStrides(const OperatorDef& def, size_t i,
                                                 const Tensor& input);
// Returns a tensor for an output. Reuses the memory of `out` if it is dense, on `device` and large
// enough. Allocates new memory otherwise, and also if `clobbers` is true: writing to `out` would
// change an input or another output.
OPKIT_COLD Tensor OutputTensor(Tensor out, const Shape& shape, DType dtype, Device device,
                               FunctionRef<bool(const Tensor&)> clobbers);
// Ends the latest span of this thread if a profile records the work of spans. Returns that
// profile's sink; null if there is none.
SpanSink* EndSpanForWork() noexcept;
// Throws kOperatorFailed for a RunOnDevice that returned false.
[[noreturn]] OPKIT_COLD void ThrowReturnedFalse();

// Refuses undeclared arguments of the operator that this thread constructs. CreateOperator sets it,
// so that this header needs no schema class.
struct ArgumentCheck {
  const OpSchema* schema = nullptr;
  void (*refuse)(const OpSchema& schema, const std::string& type, std::string_view name) = nullptr;
};
inline constinit thread_local ArgumentCheck t_argument_check;

}  // namespace detail

// The base class of all operators. Not synchronised: one run at a time. Operators of one workspace
// may run at the same time if none writes a tensor that another reads or writes.
class OperatorBase : public detail::Observable<OperatorBase> {
 public:
  // Binds inputs, which must exist, and outputs, which it creates; copies the node's configuration,
  // if any. Throws kNotFound, kInvalidArgument.
  OperatorBase(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr);
  OPKIT_INLINE virtual ~OperatorBase();

  // Runs to completion. Returns true, or throws an Error with the operator as context.
  virtual bool Run(int stream_id = 0) = 0;
  // Issues the work and returns; event() completes with the work. If issuing fails, the event fails
  // and the Error is thrown as well. Throws kFailedPrecondition while the last run is still
  // SCHEDULED.
  virtual bool RunAsync(int stream_id = 0) = 0;
  // Does the operator's work. The default throws kUnsupported, for a class that derives directly
  // from OperatorBase and does its work in Run.
  OPKIT_INLINE virtual bool RunOnDevice();
  // True if Run only calls RunOnDevice on the calling thread: it uses no stream, and no work
  // continues after the call.
  virtual bool RunsDirectly() const { return false; }
  // Runs an operator that RunsDirectly(), under the caller's invocation: a plan opens one scope for
  // many operators.
  void RunDirectly() {
    detail::ObserverScope<OperatorBase> observers(*this);
    try {
      if (!RunOnDevice()) [[unlikely]]
        detail::ThrowReturnedFalse();
      PublishOutputs();
    } catch (...) {
      RethrowWithContext();
    }
    observers.Succeeded();
  }
  // Issues the work of a run that its device records and repeats (device/recorded_work.hpp),
  // without event, observers and span. The default throws kUnsupported.
  OPKIT_INLINE virtual void RunRecorded(int stream_id);
  // True if plans may record a run of this operator: with the same tensors each run issues the same
  // work, whatever the elements of the tensors are. False for a class whose RunOnDevice decides
  // something else on the host, such as a seed.
  virtual bool SupportsRecording() const { return false; }
  // True if RunOnDevice respects the strides of its inputs. If false, Input returns dense copies of
  // strided inputs.
  virtual bool AcceptsStrides() const { return false; }
  // True if work continues after RunOnDevice has returned.
  virtual bool HasAsyncPart() const = 0;
  // True if the operator may be issued before its predecessors on the same device type are done.
  virtual bool SupportsAsyncScheduling() const = 0;
  // Makes the event SCHEDULED; it completes with the work issued so far. With a message, makes it
  // FAILED at once. Does nothing if the event is disabled. Throws kUnsupported in a class without a
  // context.
  OPKIT_INLINE virtual void RecordEvent(const char* error_message = nullptr);
  // Makes all work that this operator issues later wait for the event; `stream_id` -1 is the
  // current stream. A FAILED event fails that work.
  virtual void WaitEvent(const Event& event, int stream_id = -1) = 0;
  virtual void WaitEvents(const std::vector<const Event*>& events, int stream_id = -1) = 0;
  // Blocks until this operator's stream has finished all work, so that an observer can measure it.
  virtual void SyncDeviceBarrierForObservers() = 0;
  virtual bool IsStreamFree(int stream_id) const = 0;
  // Fails the event of a run in flight with kCancelled at once; the device finishes the work that
  // it has begun. Does nothing for a finished run.
  OPKIT_INLINE virtual void Cancel();

  // Returns the operator's own copy of its node.
  const OperatorDef& def() const { return identity_->def; }
  // Returns the backend of the kernel, such as "eigen"; empty for an operator that was made without
  // a kernel.
  std::string backend() const {
    return identity_->cost.backend ? *identity_->cost.backend : std::string();
  }
  // Caffe2's spellings. Every operator has a definition, so has_debug_def is true.
  const OperatorDef& debug_def() const { return def(); }
  static constexpr bool has_debug_def() { return true; }
  const std::string& type() const { return def().type(); }
  Device device() const { return device_; }
  Workspace* workspace() const { return workspace_; }

  // The next functions read attributes; call them in constructors. They throw kTypeMismatch for a
  // value of another type, and kInvalidArgument, with the nearest name, for an attribute that the
  // operator's schema does not declare.
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

  // The same as GetSingleArgument; InferenceContext has this name, too. Without a fallback, both
  // functions return the schema's default if the node does not give the attribute. They throw
  // kNotFound if the schema has no default.
  template <class T>
  T Arg(std::string_view name, T fallback) const {
    CheckDeclared(name);
    return def().args().Get<T>(name, std::move(fallback));
  }
  template <class T>
  T Arg(std::string_view name) const {
    const Attribute* fallback = FindArgument(name) ? nullptr : FindDefault(name);
    return fallback ? fallback->Get<T>() : def().args().Get<T>(name);
  }
  template <class T>
  T GetSingleArgument(std::string_view name) const {
    return Arg<T>(name);
  }

  // Return the numbers of the node's inputs and outputs, including left-out ones.
  int InputSize() const { return static_cast<int>(inputs_.size()); }
  int OutputSize() const { return static_cast<int>(outputs_.size()); }
  // False for an optional value that the node leaves out.
  bool HasInput(int i) const { return i >= 0 && i < InputSize() && inputs_[detail::Index(i)]; }
  bool HasOutput(int i) const { return i >= 0 && i < OutputSize() && outputs_[detail::Index(i)]; }

  // Returns the input; for a strided input a dense copy, unless the operator AcceptsStrides(). The
  // copy is made once a run, on the device's stream, and lasts as long as the run and its work:
  // call Input in RunOnDevice, not in code that runs later. Throws kOutOfRange, kUninitialized,
  // kTypeMismatch; kInvalidArgument for a tensor on a device that this operator cannot reach.
  // Throws kUnsupported if no copy can be made: the schema declares that the node writes to the
  // input, or the device cannot copy strided tensors.
  __attribute__((always_inline)) const Tensor& Input(int i) const {
    const Tensor& tensor = InputBlob(i).Get<Tensor>();
    if (tensor.device() != memory_device_ || tensor.has_strides() || !tensor.layout().is_standard())
        [[unlikely]]
      return UnusualInput(i, tensor);
    return tensor;
  }
  // Returns an input on a device type other than this operator's, such as a size that the host
  // reads. A dense copy is complete at return.
  const Tensor& Input(int i, DeviceType type) const {
    const Tensor& tensor = InputBlob(i).Get<Tensor>();
    CheckDeviceType(i, tensor, type);
    return tensor.is_dense() || AcceptsStrides() ? tensor : DenseCopy(i, tensor, CopyTime::kNow);
  }
  // Returns the input as a dense tensor, for an operator that accepts strides of other inputs.
  const Tensor& DenseInput(int i) const {
    const Tensor& tensor = Input(i);
    return tensor.is_dense() ? tensor : DenseCopy(i, tensor);
  }
  // Returns a value of any C++ type.
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
  // Returns the current dtypes and shapes; unknown for a value that is left out or is no tensor.
  std::vector<TensorInfo> InputTypes() const { return TypesOf(inputs_); }
  std::vector<TensorInfo> OutputTypes() const { return TypesOf(outputs_); }

  // Returns the output in the state of the last run, or of an earlier call in this run: for
  // operators that resize it themselves.
  Tensor* Output(int i) {
    if (!pending_.empty()) [[unlikely]]
      if (Tensor* replaced = pending_.Find(i)) return replaced;
    return OutputBlob(i)->GetMutable<Tensor>();
  }
  // Returns the output with this shape and dtype, dense, on this operator's device; reuses the last
  // run's memory. The output shares memory with an input only if the schema allows the pair. The
  // call never frees or resizes an input: if the output is also an input and must change, a new
  // tensor replaces it after RunOnDevice has returned. Work that continues after that must hold the
  // tensors by value.
  Tensor* Output(int i, const Shape& shape, DType dtype) {
    return OutputIn(memory_device_, i, shape, dtype);
  }
  // Returns the output with this shape and dtype, dense, on `device`.
  Tensor* Output(int i, const Shape& shape, DType dtype, Device device) {
    return OutputIn(MemoryDevice(device), i, shape, dtype);
  }
  // Like Output(i), but on a device of this type: returns a new tensor if the present tensor is on
  // another device type.
  Tensor* Output(int i, DeviceType type);
  template <class T>
  T* Output(int i) const {
    return OutputBlob(i)->GetMutable<T>();
  }
  // Caffe2's spelling of Output(i, shape, dtype).
  Tensor* OutputTensor(int i, const Shape& shape, DType dtype) { return Output(i, shape, dtype); }
  Tensor* OutputTensor(int i, const Shape& shape, DType dtype, Device device) {
    return Output(i, shape, dtype, device);
  }
  // Returns a tensor to write to; null for an output that the node leaves out.
  Tensor* OutputTensorOrUndefined(int i) { return HasOutput(i) ? Output(i) : nullptr; }
  // Copies the elements of `source` to the output; both must be reachable from the host.
  Tensor* OutputTensorCopyFrom(int i, const Tensor& source);
  // Makes the output share the memory of `source`.
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
  // True if OutputBlob was ever called. If not, every output still has the memory that the plan
  // chose.
  bool HasTakenOutputs() const { return has_taken_outputs_; }
  // True if the input and the output share memory, even under different names.
  bool IsInputOutputAlias(int i, int o) const;

  // Returns the completion of the latest RunAsync; INITIALIZED before. Throws kFailedPrecondition
  // if the event is disabled.
  Event& event() {
    if (event_disabled_ || !event_) [[unlikely]]
      MakeEvent();
    return *event_;
  }
  void ResetEvent() {
    if (event_) event_->Reset();
  }
  // Ends the event of a run whose work continues elsewhere: with success, or with a failure. The
  // failure is the exception being handled, or the message if no exception is being handled. Does
  // nothing if the event is disabled.
  void SetEventFinished(const char* error_message = nullptr) {
    if (!event_disabled_) event().SetFinished(error_message);
  }
  void SetEventFinishedWithException(const char* error_message = nullptr);
  // Disables the event. Saves the event's cost if no thread waits for this operator, as inside a
  // chain.
  void DisableEvent() { event_disabled_ = true; }
  bool IsEventDisabled() const { return event_disabled_; }
  // Calls EventState::DeferCompletion on the events of all later runs. Executors call it.
  void DeferEventCompletion() { defers_event_completion_ = true; }
  bool IsEventCompletionDeferred() const { return defers_event_completion_; }
  void Wait(OperatorBase& other, int stream_id = -1) {
    if (!other.IsEventDisabled()) WaitEvent(other.event(), stream_id);
  }
  void Finish(Timeout timeout = {}) {
    if (event_) event_->Finish(timeout);
  }

  // Returns the operator's index in the net, -1 outside a net. A failure stores it in the
  // workspace.
  int net_position() const { return net_position_; }
  void set_net_position(int position) { net_position_ = position; }
  void RecordLastFailedOpNetPosition() {
    if (net_position_ != -1) workspace_->last_failed_op_net_position = net_position_;
  }
  std::string getErrorMsg() const { return "Error from operator: " + Describe(); }

  // Returns the kernel's configuration that was selected for this node: layouts, in-place pairs,
  // scratch. Null if none was selected: then the schema's declarations and the standard layout
  // apply.
  const KernelConfig* config() const { return config_ ? &config_->value : nullptr; }
  // Returns the configuration's layouts of an input and an output; the standard layout by default.
  Layout InputLayout(int i) const {
    return config_ ? config_->value.input_layout(detail::Index(i)) : Layout();
  }
  Layout OutputLayout(int o) const {
    return config_ ? config_->value.output_layout(detail::Index(o)) : Layout();
  }
  // Sets the configuration of an operator whose constructor does not take it.
  void SetConfig(const KernelConfig& config);

  // Gives later runs `size` bytes of the device's memory as scratch, instead of the operator's own.
  // The memory remains the caller's and must be aligned to 64 bytes; other work may write to it
  // between runs. Runs that continue after they were cancelled keep `owner`; without an owner the
  // memory must outlive them. A null `bytes` ends the use of the memory.
  void SetScratch(void* bytes, int64_t size, Storage owner = {});
  // Returns at least `size` bytes of the device's memory, undefined at the start of every run: the
  // planned memory if it is large enough, else the operator's own memory, kept for the next run.
  // Call it only once in a run: a larger request may free the memory of an earlier request. Null
  // for size 0.
  void* Scratch(int64_t size) {
    if (size < 0) [[unlikely]]
      ThrowNegativeScratch(size);
    return scratch_.Take(size, memory_device_);
  }

  // True if a run itself infers the types and shapes of its outputs after those of its inputs have
  // changed.
  virtual bool InfersOutputs() const { return false; }
  // Takes over the types that a plan has inferred: runs with inputs of these dtypes and shapes then
  // do not infer. With `lacks_data`, inference needs data that only a run has. Runs then infer
  // again, and fail if the result contradicts `outputs`. Does nothing if a dtype or shape is
  // unknown, or if runs do not infer. Throws kInvalidArgument for a wrong count.
  void SetInferredOutputs(std::span<const TensorInfo> inputs, std::span<const TensorInfo> outputs,
                          bool lacks_data = false) {
    if (InfersOutputs()) inference_.Set(def(), inputs, outputs, lacks_data);
  }
  detail::InferenceCache& inference() { return inference_; }

  // Sets where the kernel was registered; called by CreateOperator.
  void SetRegistration(const char* file, int line, detail::RunCost cost = {});
  // Sets the pairs that may share memory: output o may use the memory of input i if bit i of
  // masks[o] is set. Inputs past 63 never share memory. CreateOperator calls it. Without the call
  // every output may share the memory of every input.
  void SetInplaceMasks(std::vector<uint64_t> masks) { inplace_masks_ = std::move(masks); }
  // Sets the inputs to which the operator writes: bit i stands for input i; inputs past 63 are
  // ignored. CreateOperator calls it.
  void SetMutatedInputs(uint64_t mask) { mutated_inputs_ = mask; }
  Invocation::Kind invocation_kind() const { return invocation_kind_; }
  // Returns a node's name in profiles: its name, or that of its first output.
  static const std::string& NodeName(const OperatorDef& def);
  // Returns the names of this operator's runs in profiles.
  detail::SpanNames span_names() const {
    if (span_names_.name == 0) [[unlikely]]
      InternNames();
    return span_names_;
  }

 protected:
  // Marks the operator's work as custom in profiles; for operators of loaded libraries and
  // functions.
  void set_invocation_kind(Invocation::Kind kind) { invocation_kind_ = kind; }

  // Waits until the work of the latest run has succeeded or failed; returns at once if no work
  // continues. For the destructor of a class whose work uses its members. Also waits after Cancel,
  // because a stream still runs the work that it has begun. Must not be called on the stream's own
  // thread. The class itself must join the threads that it has started.
  void FinishWork() noexcept;
  // Records that work was issued without an event for its completion.
  void SetStrayWork() { has_stray_work_ = true; }

  // Makes the event INITIALIZED for a new run. Throws kFailedPrecondition while it is SCHEDULED.
  void PrepareEvent();
  // Keeps the memory of work that continues elsewhere until the work finishes the event. After a
  // cancellation the memory lives as long as a handle of the event.
  void RetainUntilFinished();
  // Rethrows the exception in flight as an Error with this operator as context; for use in a catch
  // block. With `complete_event` the event fails with that Error. An Error keeps its type and
  // identity; any other exception becomes the Error's cause.
  [[noreturn]] OPKIT_COLD void RethrowWithContext(bool complete_event = false);

  // Records the run's work in the profile, if the profile records work.
  OPKIT_COLD void DescribeSpan() const noexcept;

  // Moves new tensors of this run's outputs to their blobs.
  void PublishOutputs() {
    if (!pending_.empty()) [[unlikely]]
      pending_.Publish();
  }
  // Makes `dense` a dense copy of `source`; on the context's stream if the context is asynchronous.
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
  // Takes no lock. In a constructor, reads the schema of the operator that this thread constructs.
  OPKIT_COLD const Attribute* FindDefault(std::string_view name) const;
  OPKIT_COLD const Tensor& UnusualInput(int i, const Tensor& tensor) const;
  enum class CopyTime : uint8_t { kInOrder, kNow };  // in the order of the device's work, or now
  OPKIT_COLD const Tensor& DenseCopy(int i, const Tensor& tensor,
                                     CopyTime time = CopyTime::kInOrder) const;
  void CheckDeviceType(int i, const Tensor& tensor, DeviceType type) const;
  // True if writing to `out` would overwrite an input or an earlier output. Exception: an input
  // that the schema pairs with the output, if element i of both is still at the same address.
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
  // Returns the output with this shape and dtype in the memory of `device`.
  Tensor* OutputIn(Device device, int i, const Shape& shape, DType dtype) {
    Tensor* out = Output(i);
    if (out->dtype() == dtype && out->shape() == shape && out->initialized() &&
        out->device() == device && out->is_dense() && out->layout().is_standard() &&
        !has_output_layouts_ && !Clobbers(i, *out)) [[likely]]
      return out;
    return ResizeOutput(i, *out, shape, dtype, device);
  }
  // Makes `next` the output: at once, or at the end of the run if an input would change.
  OPKIT_COLD Tensor* Replace(int o, Tensor next);
  OPKIT_COLD Tensor* ResizeOutput(int o, const Tensor& out, const Shape& shape, DType dtype,
                                  Device device);
  OPKIT_COLD void MakeEvent();
  OPKIT_COLD void InternNames() const;
  OPKIT_COLD static std::vector<TensorInfo> TypesOf(const std::vector<Blob*>& blobs);
  [[noreturn]] OPKIT_COLD void RethrowDescribed();
  std::string Describe() const { return identity_->Describe(); }

  // Members that every run reads come first, in one cache line with the observers.
  Invocation::Kind invocation_kind_ = Invocation::Kind::kOperator;
  bool event_disabled_ = false;
  bool defers_event_completion_ = false;
  bool has_stray_work_ = false;
  mutable bool has_taken_outputs_ = false;
  // True if the configuration has an output layout that is not standard.
  bool has_output_layouts_ = false;
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
  mutable detail::SpanNames span_names_;  // valid after the first span_names()
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/impl/operator_base.ipp"
#endif

#endif  // OPKIT_OP_OPERATOR_BASE_HPP_
