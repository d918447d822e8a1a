// The definitions of ResolvedOperator and Invoke.
#ifndef OPKIT_OP_IMPL_INVOKE_IPP_
#define OPKIT_OP_IMPL_INVOKE_IPP_

#include "opkit/base/name_index.hpp"
#include "opkit/core/layout_registry.hpp"
#include "opkit/engine/thread_pool.hpp"
#include "opkit/op/invoke.hpp"

namespace opkit::inline OPKIT_ABI {

// Ends a call. Leaves the workspace's tensors without memory, and unspecified until the next call
// sets them.
struct ResolvedOperator::Release {
  ResolvedOperator& self;
  ~Release() {
    for (Tensor* input : self.inputs_)
      if (input) const Tensor dropped = std::move(*input);
    for (Blob* output : self.outputs_)
      if (output->IsType<Tensor>()) const Tensor dropped = std::move(*output->GetMutable<Tensor>());
    self.in_call_.End();
  }
};

namespace detail {

inline std::vector<bool> AllPresent(const std::string& op, int num_inputs) {
  if (num_inputs < 0)
    Throw(ErrorCode::kInvalidArgument, "operator ", op, " cannot have ", num_inputs, " inputs");
  return std::vector<bool>(Index(num_inputs), true);
}
OPKIT_INLINE std::vector<bool> PresentInputs(std::span<const Tensor> inputs) {
  std::vector<bool> present;
  for (const Tensor& input : inputs) present.push_back(input.dtype() != DType::kUndefined);
  return present;
}

// The schema's name of a value, where that is not in `taken` yet, which it goes to, and cannot be
// one of those that the others get.
template <class Values>
std::string NameOfValue(NameIndex& taken, const Values& declared, const char* kind, size_t i) {
  const std::string& name = i < declared.size() ? declared[i].name : std::string();
  const int next = taken.size();
  const bool usable = !name.empty() && name.find(' ') == std::string::npos;
  return usable && taken.Add(name) == next ? name : StrCat(kind, i);
}

}  // namespace detail

OPKIT_INLINE ResolvedOperator::ResolvedOperator(const std::string& op, int num_inputs,
                                                Arguments args, const InvokeOptions& options)
    : ResolvedOperator(op, detail::AllPresent(op, num_inputs), std::move(args), options) {}
OPKIT_INLINE ResolvedOperator::ResolvedOperator(const std::string& op,
                                                const std::vector<bool>& present, Arguments args,
                                                const InvokeOptions& options)
    : schema_(nullptr) {
  const detail::RegistryUse use;
  schema_ = &OpRegistry::Global().GetSchema(op);
  def_ = OperatorDef(op, {}, {}, std::move(args));
  def_.Device(options.device.value_or(Device{})).Engine(options.engine);
  NameIndex taken;
  for (size_t i = 0; i < present.size(); ++i)
    def_.Input(present[i] ? detail::NameOfValue(taken, schema_->inputs(), "input ", i)
                          : std::string());
  int num_outputs = options.num_outputs;
  if (num_outputs < 0)
    num_outputs = schema_->CalculateOutput(static_cast<int>(present.size()), def_.args());
  if (num_outputs < 0)
    Throw(ErrorCode::kInvalidArgument, "operator ", op, " has ", schema_->expected_outputs(),
          " outputs; say how many with InvokeOptions::num_outputs",
          schema_->has_arity_function()
              ? ", or once for all in its parseAttrs (REGISTER_OP(…).setParseAttrs(f))"
              : "");
  for (size_t i = 0; i < detail::Index(num_outputs); ++i)
    def_.Output(detail::NameOfValue(taken, schema_->outputs(), "output ", i));
  Place place = MakePlace();
  auto made = CreateOperator(def_, place.workspace.get(), {.converts = true});
  SetOperator(std::move(made), std::move(place));
  for (const Kernel* kernel : OpRegistry::Global().FindKernels(op, def_.device().type))
    selects_ |= kernel->proposes_layouts || OpRegistry::Global().BackendRank(kernel->backend) > 0;
  if (selects_) selected_for_.resize(inputs_.size());
}

OPKIT_INLINE std::vector<Tensor> ResolvedOperator::operator()(std::span<const Tensor> inputs) {
  std::vector<Tensor> results(def_.outputs().size());
  Run(inputs, results);
  return results;
}
OPKIT_INLINE void ResolvedOperator::RunBy(std::span<const Tensor> inputs, std::span<Tensor> outputs,
                                          bool (OperatorBase::*run)(int stream_id)) {
  const size_t num_inputs = def_.inputs().size(), num_outputs = def_.outputs().size();
  if (inputs.size() != num_inputs || outputs.size() != num_outputs)
    Throw(ErrorCode::kInvalidArgument, "operator ", def_.type(), " was resolved for ", num_inputs,
          " inputs and ", num_outputs, " outputs, but called with ", inputs.size(), " and ",
          outputs.size());
  if (!in_call_.Begin()) [[unlikely]]
    Throw(ErrorCode::kFailedPrecondition, "the ResolvedOperator of ", def_.type(),
          " is called while another call of it runs, and takes one thread at a time: make one for "
          "each thread");
  const Release release{*this};
  bool standard = true;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs_[i]) {
      *inputs_[i] = inputs[i];
      standard &= inputs[i].layout().is_standard();
    }
  if (selects_ && !detail::InferenceCache::Match(selected_for_, inputs_)) [[unlikely]]
    Select();
  if (converts_ || !standard) [[unlikely]]
    ConvertInputs();
  if (checks_types_ && !op_->inference().IsFresh(inputs_)) [[unlikely]] {
    op_->inference().Infer(
        def_, inputs_, [this](InferenceContext& context) { schema_->Infer(context); }, [] {});
    op_->inference().Keep();
  }
  for (size_t o = 0; o < outputs.size(); ++o) *outputs_[o]->GetMutable<Tensor>() = outputs[o];
  if (run == &OperatorBase::RunAsync) op_->DisableEvent();  // one run follows another unfinished
  (op_.get()->*run)(0);
  for (size_t o = 0; o < outputs.size(); ++o) {
    const Blob& output = *outputs_[o];
    if (!output.IsType<Tensor>()) [[unlikely]]
      Throw(ErrorCode::kTypeMismatch, "'", output.name(), "' of operator ", def_.type(),
            " is not a tensor; run it in a workspace to get it");
    const Tensor& made = output.Get<Tensor>();
    if (!made.initialized()) [[unlikely]]
      Throw(ErrorCode::kOperatorFailed, "operator ", def_.type(), " returned without making '",
            output.name(), "'; get it with Output(i, shape, dtype) and write to it");
    if (checks_types_ && !op_->inference().outputs()[o].Allows(made)) [[unlikely]]
      detail::ThrowContradicts(def_, output.name(), made, op_->inference().outputs()[o].info());
    if (converts_ || !made.layout().is_standard()) [[unlikely]]
      if (const Layout promised = op_->OutputLayout(static_cast<int>(o));
          made.layout().id != promised.id)
        detail::ThrowOtherLayout(def_, output.name(), made, promised);
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    Tensor& made = *outputs_[o]->GetMutable<Tensor>();
    if (converts_ && !made.layout().is_standard()) [[unlikely]]
      ConvertOutput(made, outputs[o]);
    else
      outputs[o] = std::move(made);
  }
}

OPKIT_INLINE void ResolvedOperator::ConvertInputs() {
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i] && inputs_[i]->initialized())
      *inputs_[i] = ConvertLayout(*inputs_[i], op_->InputLayout(static_cast<int>(i)));
}
OPKIT_INLINE void ResolvedOperator::ConvertOutput(const Tensor& made, Tensor& output) const {
  const InvocationScope scope(InvocationKind::kConverter, [&] {
    return SpanNames{InternName("ConvertLayout"), InternName(def_.type())};
  });
  Tensor target = output.layout().is_standard() ? output : Tensor(made.device());
  target.Resize(made.shape(), made.dtype());
  ConvertLayoutTo(made, target);
  output = std::move(target);
}

OPKIT_INLINE ResolvedOperator::Place ResolvedOperator::MakePlace() const {
  Place place{std::make_unique<Workspace>(), {}};
  for (const std::string& name : def_.inputs())
    place.inputs.push_back(name.empty() ? nullptr : place.workspace->CreateTensor(name));
  return place;
}
OPKIT_INLINE void ResolvedOperator::SetOperator(std::unique_ptr<OperatorBase> op, Place place) {
  std::vector<Blob*> outputs;
  for (const std::string& name : def_.outputs()) outputs.push_back(place.workspace->GetBlob(name));
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i]) *place.inputs[i] = std::move(*inputs_[i]);
  op_ = std::move(op);
  workspace_ = std::move(place.workspace);
  inputs_ = std::move(place.inputs);
  outputs_ = std::move(outputs);
  checks_types_ = (schema_->has_inference() || schema_->limits_dtypes()) && !op_->InfersOutputs();
}
OPKIT_INLINE void ResolvedOperator::Select() {
  const detail::RegistryUse use;
  std::vector<TensorInfo> infos;
  for (const Tensor* input : inputs_)
    infos.push_back(input && input->initialized() ? TensorInfo::Of(*input) : TensorInfo());
  const std::vector<TensorInfo> outputs = schema_->InferOutputs(def_, infos);
  Place place = MakePlace();
  // Work that goes on in a stream has not made what would have to be converted.
  const bool converts = def_.device().type == DeviceType::kCPU;
  KernelCandidate chosen;
  auto op =
      CreateSelected(def_, place.workspace.get(), infos, outputs, {.converts = converts}, &chosen);
  SetOperator(std::move(op), std::move(place));
  converts_ = !chosen.config.is_standard();
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i]) selected_for_[i] = {inputs_[i]->dtype(), true, inputs_[i]->shape()};
}

namespace detail {
OPKIT_IMAGE_LOCAL inline ResolvedOperator Resolve(const std::string& op,
                                                  const std::vector<Tensor>& inputs, Arguments args,
                                                  InvokeOptions options) {
  const std::vector<bool> present = PresentInputs(inputs);
  for (size_t i = 0; i < inputs.size() && !options.device; ++i)
    if (present[i]) options.device = inputs[i].device();
  return ResolvedOperator(op, present, std::move(args), options);
}
}  // namespace detail

OPKIT_INLINE std::vector<Tensor> Invoke(const std::string& op, const std::vector<Tensor>& inputs,
                                        Arguments args, InvokeOptions options) {
  return detail::Resolve(op, inputs, std::move(args), std::move(options))(std::span(inputs));
}

struct PendingOutputs::State {
  State(ResolvedOperator resolved, std::vector<Tensor> tensors)
      : op(std::move(resolved)), inputs(std::move(tensors)) {}

  void Run() noexcept {
    std::exception_ptr failure;
    {  // nothing of the call outlives it on this thread but the outputs
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
  Latch done{1};
  bool taken = false;
};

OPKIT_INLINE PendingOutputs::PendingOutputs(std::shared_ptr<State> state)
    : state_(std::move(state)) {}
OPKIT_INLINE const Event& PendingOutputs::event() const { return state_->event; }
OPKIT_INLINE std::vector<Tensor> PendingOutputs::Get() {
  if (std::exchange(state_->taken, true))
    Throw(ErrorCode::kFailedPrecondition, "PendingOutputs::Get: the outputs were taken already");
  if (!state_->done.done()) state_->pool.Wait(state_->done);
  state_->event.RethrowIfFailed();
  return std::move(state_->outputs);
}

OPKIT_INLINE PendingOutputs InvokeAsync(const std::string& op, std::vector<Tensor> inputs,
                                        Arguments args, InvokeOptions options) {
  ResolvedOperator resolved = detail::Resolve(op, inputs, std::move(args), std::move(options));
  auto state = std::make_shared<PendingOutputs::State>(std::move(resolved), std::move(inputs));
  state->event.SetScheduled();
  if (state->pool.threads() > 1)
    state->pool.Submit([state] { state->Run(); });
  else
    state->Run();
  return PendingOutputs(std::move(state));
}

}  // namespace opkit

#endif  // OPKIT_OP_IMPL_INVOKE_IPP_
