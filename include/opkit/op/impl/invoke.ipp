// The definitions of ResolvedOperator and Invoke.
#ifndef OPKIT_OP_IMPL_INVOKE_IPP_
#define OPKIT_OP_IMPL_INVOKE_IPP_

#include "opkit/base/algorithm.hpp"
#include "opkit/engine/thread_pool.hpp"
#include "opkit/op/call/direct_call.hpp"
#include "opkit/op/call/operator_call.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/op/random.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Ends the call at the end of the scope.
struct ResolvedOperator::Release {
  ResolvedOperator& self;
  ~Release() { self.call_guard_.End(); }
};

namespace detail {

inline std::vector<int> AllPresent(const std::string& op, int num_inputs) {
  if (num_inputs < 0)
    Throw(ErrorCode::kInvalidArgument, "operator ", op, " cannot have ", num_inputs, " inputs");
  return std::vector<int>(Index(num_inputs), 1);
}
OPKIT_INLINE std::vector<int> PresentInputs(std::span<const Tensor> inputs) {
  std::vector<int> present;
  for (const Tensor& input : inputs) present.push_back(input.dtype() != DType::kUndefined);
  return present;
}

OPKIT_INLINE int CountOutputs(const OpSchema& schema, size_t num_inputs, const Arguments& args,
                              int given, const char* mend) {
  const int count = given >= 0 ? given : schema.CalculateOutput(static_cast<int>(num_inputs), args);
  if (count < 0)
    Throw(ErrorCode::kInvalidArgument, "operator ", schema.name(), " has ",
          schema.expected_outputs(), " outputs; ", mend);
  return count;
}
// Returns the schema's name of value i, or a generated name such as "input 0". Generates a name if
// the schema has no name for the value, or if the node already has a value of that name. Also
// replaces a name with a space, which could equal a generated name.
inline std::string NameOfValue(const OperatorDef& def, const std::vector<ValueSchema>& declared,
                               const char* kind, size_t i) {
  if (i < declared.size()) {
    const std::string& name = declared[i].name;
    if (!name.empty() && name.find(' ') == std::string::npos && !Contains(def.inputs(), name) &&
        !Contains(def.outputs(), name))
      return name;
  }
  return StrCat(kind, i);
}

}  // namespace detail

OPKIT_INLINE ResolvedOperator::ResolvedOperator(const std::string& op, int num_inputs,
                                                Arguments args, const InvokeOptions& options)
    : ResolvedOperator(op, detail::AllPresent(op, num_inputs), std::move(args), options) {}
OPKIT_INLINE ResolvedOperator::ResolvedOperator(const std::string& op,
                                                const std::vector<int>& present, Arguments args,
                                                const InvokeOptions& options)
    : schema_(nullptr) {
  const detail::RegistryUse use;
  schema_ = &OpRegistry::Global().GetSchema(op);
  def_ = OperatorDef(op, {}, {}, std::move(args));
  def_.Device(options.device.value_or(Device{})).Backends(options.backends, options.backend_need);
  for (size_t i = 0; i < present.size(); ++i)
    def_.Input(present[i] ? detail::NameOfValue(def_, schema_->inputs(), "input ", i)
                          : std::string());
  const int num_outputs =
      detail::CountOutputs(*schema_, present.size(), def_.args(), options.num_outputs,
                           schema_->has_arity_function()
                               ? "say how many with InvokeOptions::num_outputs, or once for all in "
                                 "its parseAttrs (REGISTER_OP(…).setParseAttrs(f))"
                               : "say how many with InvokeOptions::num_outputs");
  for (size_t i = 0; i < detail::Index(num_outputs); ++i)
    def_.Output(detail::NameOfValue(def_, schema_->outputs(), "output ", i));
  detail::CheckNode(*schema_, def_);
  detail::CheckEngine(def_);
  call_ = detail::MakeDirectCall(*schema_, def_);
  if (!call_.run) call_ = detail::g_operator_call(*schema_, def_);
}

OPKIT_INLINE std::vector<Tensor> ResolvedOperator::operator()(std::span<const Tensor> inputs) {
  std::vector<Tensor> results(def_.outputs().size());
  Run(inputs, results);
  return results;
}
OPKIT_INLINE void ResolvedOperator::RunBy(std::span<const Tensor> inputs, std::span<Tensor> outputs,
                                          bool issue) {
  const size_t num_inputs = def_.inputs().size(), num_outputs = def_.outputs().size();
  if (inputs.size() != num_inputs || outputs.size() != num_outputs)
    Throw(ErrorCode::kInvalidArgument, "operator ", def_.type(), " was resolved for ", num_inputs,
          " inputs and ", num_outputs, " outputs, but called with ", inputs.size(), " and ",
          outputs.size());
  if (!call_guard_.Begin()) [[unlikely]]
    Throw(ErrorCode::kFailedPrecondition, "the ResolvedOperator of ", def_.type(),
          " is called while another call of it runs, and takes one thread at a time: make one for "
          "each thread");
  const Release release{*this};
  call_.run(inputs, outputs, issue);
}

OPKIT_INLINE OperatorBase& ResolvedOperator::op() {
  if (!call_.by_operator) {
    const detail::RegistryUse use;
    call_ = detail::MakeOperatorCall(*schema_, def_);
  }
  return call_.by_operator->op();
}

namespace detail {
OPKIT_IMAGE_LOCAL inline ResolvedOperator Resolve(const std::string& op,
                                                  const std::vector<Tensor>& inputs, Arguments args,
                                                  InvokeOptions options) {
  const std::vector<int> present = PresentInputs(inputs);
  for (size_t i = 0; i < inputs.size() && !options.device; ++i)
    if (present[i]) options.device = inputs[i].device();
  return ResolvedOperator(op, present, std::move(args), options);
}
}  // namespace detail

OPKIT_INLINE std::vector<Tensor> Invoke(const std::string& op, const std::vector<Tensor>& inputs,
                                        Arguments args, InvokeOptions options) {
  const detail::ScopedValue in_invoke(detail::t_in_invoke, true);
  return detail::Resolve(op, inputs, std::move(args), std::move(options))(std::span(inputs));
}

// A call of InvokeAsync, shared by its handle and by the pool's thread.
struct PendingOutputs::State : detail::RefCounted {
  State(ResolvedOperator resolved, std::vector<Tensor> tensors)
      : op(std::move(resolved)), inputs(std::move(tensors)) {}

  void Run() noexcept {
    std::exception_ptr failure;
    {  // destroys the call, except its outputs, before the event completes
      const detail::ScopedValue in_invoke(detail::t_in_invoke, true);
      ResolvedOperator called = std::move(op);
      const std::vector<Tensor> read = std::move(inputs);
      try {
        outputs = called(std::span(read));
      } catch (...) {
        failure = std::current_exception();
      }
    }
    if (failure)
      event.SetFinishedWithException(std::move(failure));
    else
      event.SetFinished();
    done.CountDown();
  }

  ResolvedOperator op;
  std::vector<Tensor> inputs, outputs;
  Event event;
  ThreadPool& pool = ThreadPool::Current();
  detail::Latch done{1};
  bool taken = false;
};

OPKIT_INLINE PendingOutputs::PendingOutputs(detail::IntrusivePtr<detail::RefCounted> state)
    : state_(std::move(state)) {}
OPKIT_INLINE PendingOutputs::State& PendingOutputs::state() const {
  return static_cast<State&>(*state_);
}
OPKIT_INLINE const Event& PendingOutputs::event() const { return state().event; }
OPKIT_INLINE std::vector<Tensor> PendingOutputs::Get() {
  if (std::exchange(state().taken, true))
    Throw(ErrorCode::kFailedPrecondition, "PendingOutputs::Get: the outputs were taken already");
  if (!state().done.done()) state().pool.Wait(state().done);
  state().event.RethrowIfFailed();
  return std::move(state().outputs);
}

OPKIT_INLINE PendingOutputs InvokeAsync(const std::string& op, std::vector<Tensor> inputs,
                                        Arguments args, InvokeOptions options) {
  ResolvedOperator resolved = detail::Resolve(op, inputs, std::move(args), std::move(options));
  auto state = detail::MakeIntrusive<PendingOutputs::State>(std::move(resolved), std::move(inputs));
  state->event.SetScheduled();
  if (state->pool.threads() > 1)
    state->pool.Submit([state] { state->Run(); });
  else
    state->Run();
  return PendingOutputs(state);
}

}}  // namespace opkit

#endif  // OPKIT_OP_IMPL_INVOKE_IPP_
