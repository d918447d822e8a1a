// Operator<Context>: the class that operators' authors derive from. It owns the device context. Its
// Run (to completion) and RunAsync (issues the work, which completes the event) call RunOnDevice.
#ifndef OPKIT_OP_OPERATOR_HPP_
#define OPKIT_OP_OPERATOR_HPP_

#include "opkit/device/copy.hpp"
#include "opkit/op/operator_base.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

//   template <class Context>
//   class ScaleOp final : public opkit::Operator<Context> {
//    public:
//     USE_OPERATOR_FUNCTIONS(Context);
//     ScaleOp(const OperatorDef& def, Workspace* ws)
//         : Operator<Context>(def, ws), scale_(GetSingleArgument<float>("scale", 1.f)) {}
//     bool RunOnDevice() override { … }
//   };
//
// Run of a synchronous operator costs a few ns over the virtual call; nothing is allocated.
template <class Context>
class Operator : public OperatorBase {
  static_assert(DeviceContext<Context>,
                "Operator<Context>: Context must meet opkit::DeviceContext (device/context.hpp)");

 public:
  // Binds the node's tensors, as OperatorBase does, and makes the context of the node's device.
  Operator(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : OperatorBase(def, ws, config), context_(def.device()) {
    context_.SwitchToDevice(0);  // for the constructors of derived classes
  }

  // Does the operator's work on the context's device and stream. False or an exception is a
  // failure.
  bool RunOnDevice() override = 0;

  // The members of OperatorBase, for this context.
  bool Run(int stream_id = 0) final {
    if (RunsDirectly()) [[likely]] {
      InvocationScope invocation(invocation_kind(), device(), [this] { return span_names(); });
      RunDirectly();
      if (invocation.is_recorded()) [[unlikely]]
        DescribeSpan();
      return true;
    }
    const bool by_event = !Context::kAsynchronous && HasAsyncPart();
    return RunAs(stream_id, by_event, [&] { RunToEnd(by_event); });
  }
  bool RunAsync(int stream_id = 0) final {
    return RunAs(stream_id, !IsEventDisabled(), [this] { Issue(); });
  }
  // The members of OperatorBase, for devices that repeat recorded work.
  void RunRecorded(int stream_id) final {
    if constexpr (Context::kAsynchronous) {
      try {
        context_.SwitchToDevice(stream_id);
        RunOnDeviceOrFail();
        PublishOutputs();
      } catch (...) {
        RethrowWithContext();
      }
    } else {
      OperatorBase::RunRecorded(stream_id);
    }
  }
  bool SupportsRecording() const override { return SupportsAsyncScheduling(); }

  // True on the CPU for an operator whose work ends in RunOnDevice.
  bool RunsDirectly() const final { return std::is_same_v<Context, CPUContext> && !HasAsyncPart(); }
  bool HasAsyncPart() const override { return Context::kAsynchronous; }
  bool SupportsAsyncScheduling() const override {
    return kSupportsAsyncScheduling<Context> && HasAsyncPart();
  }

  // The members of OperatorBase, on the context's stream.
  void RecordEvent(const char* error_message = nullptr) final {
    if (IsEventDisabled()) return;
    event().state()->SetContext(failure_context());
    if (error_message) [[unlikely]]
      return event().SetFinished(error_message);
    if constexpr (Context::kAsynchronous) {
      TouchedStorages(event().state()->retained);
      if (IsEventCompletionDeferred()) event().state()->DeferCompletion();
    }
    context_.Record(event());
  }
  void WaitEvent(const Event& event, int stream_id = -1) final {
    if (stream_id >= 0) context_.SwitchToDevice(stream_id);
    context_.WaitEvent(event);
  }
  void WaitEvents(const std::vector<const Event*>& events, int stream_id = -1) final {
    if (stream_id >= 0) context_.SwitchToDevice(stream_id);
    for (const Event* event : events) context_.WaitEvent(*event);
  }
  void SyncDeviceBarrierForObservers() override {
    try {
      context_.FinishDeviceComputation();
    } catch (...) {
      // The failed work was issued earlier; the next event that is recorded here gets its failure.
      if constexpr (detail::HostContext<Context>)
        context_.Launch([failure = std::current_exception()] { std::rethrow_exception(failure); });
      throw;
    }
  }
  bool IsStreamFree(int stream_id) const override {
    return Context::IsStreamFree(device(), stream_id);
  }

  // Return the context in which the operator runs; getContext is Caffe2's spelling.
  Context& context() { return context_; }
  const Context* getContext() const { return &context_; }

 protected:
  void CopyDense(const Tensor& source, Tensor* dense) final {
    if constexpr (Context::kAsynchronous &&
                  (detail::HostContext<Context> || detail::NativeStreamContext<Context>))
      CopyAsync(context_, source, dense);
    else
      OperatorBase::CopyDense(source, dense);
  }

 private:
  // Runs `body` with the run's invocation, observers and stream. With `by_event` the event belongs
  // to this run and fails with it.
  template <class Body>
  bool RunAs(int stream_id, bool by_event, Body body) {
    const detail::IssueScope issue(Context::kAsynchronous && !IsEventDisabled());
    InvocationScope invocation(invocation_kind(), device(), [this] { return span_names(); });
    detail::ObserverScope<OperatorBase> observers(*this);
    SwitchStream(stream_id, by_event);
    if (by_event) {
      PrepareEvent();
      if (invocation.is_recorded()) BeginSpan();
    }
    try {
      body();
      PublishOutputs();
    } catch (...) {
      Fail(by_event);
    }
    if (invocation.is_recorded()) [[unlikely]]
      DescribeSpan();
    observers.Succeeded();
    return true;
  }
  OPKIT_COLD void BeginSpan() {
    event().state()->SetSpan(CurrentInvocation().id);
    if constexpr (detail::TimedContext<Context>) context_.BeginSpan(event());
  }
  void SwitchStream(int stream_id, bool by_event) {
    try {
      context_.SwitchToDevice(stream_id);
    } catch (...) {
      const bool in_flight = by_event && event().Query() == EventStatus::kScheduled;
      if (by_event && !in_flight) PrepareEvent();
      // No work was issued yet. If an earlier run is still in flight, its event stays unchanged.
      RethrowWithContext(by_event && !in_flight);
    }
  }
  void RunOnDeviceOrFail() {
    if (!RunOnDevice()) [[unlikely]]
      detail::ThrowReturnedFalse();
  }
  void RunToEnd(bool by_event) {
    if constexpr (Context::kAsynchronous) {
      RunOnDeviceOrFail();
      context_.FinishDeviceComputation();
    } else if (by_event) [[unlikely]] {
      Issue();
      event().Finish();
    } else {
      RunOnDeviceOrFail();
    }
  }
  // Issues the work and sets the event, if any, to the state that fits the device: SCHEDULED if the
  // work continues, else finished.
  void Issue() {
    if constexpr (Context::kAsynchronous) {
      RunOnDeviceOrFail();
      if (!HasAsyncPart()) [[unlikely]] {
        if (!IsEventDisabled()) event().SetFinished();
      } else if (!IsEventDisabled()) {
        RecordEvent();
      } else if constexpr (detail::HostContext<Context>) {
        detail::RefCountedList kept;  // kept until the stream has finished this run
        TouchedStorages(kept);
        context_.Launch([kept = std::move(kept)] {});
      } else if constexpr (detail::RetainingContext<Context>) {
        detail::RefCountedList kept;
        TouchedStorages(kept);
        context_.Retain(std::move(kept));
      }
    } else if (HasAsyncPart()) [[unlikely]] {
      IssueAsyncPart();
    } else {
      RunOnDeviceOrFail();
      if (!IsEventDisabled()) event().SetFinished();
    }
  }
  OPKIT_COLD void IssueAsyncPart() {
    static_cast<void>(event());  // throws if disabled: no thread could wait for the run
    RecordEvent();  // before the body: the operator may finish the event from another thread
    RunOnDeviceOrFail();
    RetainUntilFinished();
  }
  // Rethrows the exception in flight with this operator as context; for use in a catch block.
  [[noreturn]] OPKIT_COLD void Fail(bool complete_event) {
    if constexpr (Context::kAsynchronous) RetainUntilDrained();
    RethrowWithContext(complete_event);
  }
  // Keeps the tensors' memory after a failure, until the stream has finished the work in flight.
  void RetainUntilDrained() noexcept {
    SetStrayWork();
    try {
      Event drained(device());
      TouchedStorages(drained.state()->retained);
      context_.Record(drained);
    } catch (...) {  // if the device accepts no work at all, nothing was issued
    }
  }

 protected:
  Context context_;
};

}}  // namespace opkit

// Makes a member template of the base, and its overloads, usable without `template`. g++ parses the
// name as a template only if the class itself declares a template of this name.
#define OPKIT_USE_OPERATOR_TEMPLATE(Name)                                 \
  using ::opkit::OperatorBase::Name;                                      \
  template <class OpkitT, class... OpkitArgs>                             \
  decltype(auto) Name(OpkitArgs&&... args) const {                        \
    return static_cast<const ::opkit::OperatorBase&>(*this).Name<OpkitT>( \
        static_cast<OpkitArgs&&>(args)...);                               \
  }                                                                       \
  static_assert(true)
// Makes names of the base usable without `this->` and without `template` in a class template
// derived from Operator<Context>. Name the type of each Input and Output (`const Tensor& x =
// Input(0); x.data<float>()`): in a chain or behind `auto` C++ needs `template` before `data`.
#define OPKIT_USE_OPERATOR_BASE_FUNCTIONS               \
  using ::opkit::OperatorBase::DenseInput;              \
  using ::opkit::OperatorBase::FinishWork;              \
  using ::opkit::OperatorBase::HasArgument;             \
  using ::opkit::OperatorBase::HasInput;                \
  using ::opkit::OperatorBase::HasOutput;               \
  using ::opkit::OperatorBase::InputBlob;               \
  using ::opkit::OperatorBase::InputSize;               \
  using ::opkit::OperatorBase::InputTensorShapes;       \
  using ::opkit::OperatorBase::IsInputOutputAlias;      \
  using ::opkit::OperatorBase::OutputBlob;              \
  using ::opkit::OperatorBase::OutputSize;              \
  using ::opkit::OperatorBase::OutputTensor;            \
  using ::opkit::OperatorBase::OutputTensorAlias;       \
  using ::opkit::OperatorBase::OutputTensorCopyFrom;    \
  using ::opkit::OperatorBase::OutputTensorOrUndefined; \
  using ::opkit::OperatorBase::Scratch;                 \
  using ::opkit::OperatorBase::SetOutputTensor;         \
  using ::opkit::OperatorBase::config;                  \
  using ::opkit::OperatorBase::def;                     \
  using ::opkit::OperatorBase::device;                  \
  using ::opkit::OperatorBase::event;                   \
  OPKIT_USE_OPERATOR_TEMPLATE(Arg);                     \
  OPKIT_USE_OPERATOR_TEMPLATE(GetRepeatedArgument);     \
  OPKIT_USE_OPERATOR_TEMPLATE(GetSingleArgument);       \
  OPKIT_USE_OPERATOR_TEMPLATE(HasSingleArgumentOfType); \
  OPKIT_USE_OPERATOR_TEMPLATE(Input);                   \
  OPKIT_USE_OPERATOR_TEMPLATE(InputIsType);             \
  OPKIT_USE_OPERATOR_TEMPLATE(Output)
#define OPKIT_USE_OPERATOR_FUNCTIONS(Context) \
  OPKIT_USE_OPERATOR_BASE_FUNCTIONS;          \
  using ::opkit::Operator<Context>::context_

// Names the indices of inputs and outputs: INPUT_TAGS(X, SCALE); … Input(SCALE).
#define OPKIT_INPUT_TAGS(first, ...) enum InputTag { first = 0 __VA_OPT__(, ) __VA_ARGS__ }
#define OPKIT_OUTPUT_TAGS(first, ...) enum OutputTag { first = 0 __VA_OPT__(, ) __VA_ARGS__ }

#endif  // OPKIT_OP_OPERATOR_HPP_
