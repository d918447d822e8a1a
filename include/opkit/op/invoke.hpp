// Invoke: calls an operator by name on tensors, without a workspace or a graph. ResolvedOperator is
// the same call with everything but the run done once.
#ifndef OPKIT_OP_INVOKE_HPP_
#define OPKIT_OP_INVOKE_HPP_

#include "opkit/op/kernel_candidates.hpp"

namespace opkit::inline OPKIT_ABI {

struct InvokeOptions {
  std::optional<Device> device = {};  // default: that of the first input
  std::string engine = {};            // backends to try; default: the registry's order
  int num_outputs = -1;               // needed only where the schema leaves it open
};

// An operator ready to be called again and again: schema, kernel and attributes are settled, and
// while the inputs' dtypes and shapes stay the same, so is inference. Where the operator has a
// kernel of a ranked backend, new dtypes or shapes also select anew, which makes another operator.
// Nothing of the caller's is held between calls. A call returns when the work is done. Not
// synchronised: one thread at a time.
//
//   ResolvedOperator axpy("Axpy", 2, {{"alpha", 2.f}});
//   std::vector<Tensor> out = axpy({x, y});       // new outputs
//   axpy.Run({x, y}, outputs);                    // into tensors of the caller's: no allocation
//
// A template, so that programs without eager calls do not compile it.
template <class Base>
class BasicResolvedOperator {
 public:
  // Errors: as CreateOperator; kInvalidArgument when the number of outputs is open.
  BasicResolvedOperator(const std::string& op, int num_inputs, Arguments args = {},
                        const InvokeOptions& options = {})
      : BasicResolvedOperator(op, AllPresent(op, num_inputs), std::move(args), options) {}
  // `present[i]` false leaves optional input i out.
  OPKIT_COLD OPKIT_IMAGE_LOCAL BasicResolvedOperator(const std::string& op,
                                                     const std::vector<bool>& present,
                                                     Arguments args, const InvokeOptions& options)
      : schema_(&OpRegistry::Global().GetSchema(op)) {
    def_ = OperatorDef(op, {}, {}, std::move(args));
    def_.Device(options.device.value_or(Device{})).Engine(options.engine);
    for (size_t i = 0; i < present.size(); ++i)
      def_.Input(present[i] ? StrCat("input ", i) : std::string());
    int num_outputs = options.num_outputs;
    if (num_outputs < 0)
      num_outputs = schema_->CalculateOutput(static_cast<int>(present.size()), def_.args());
    if (num_outputs < 0)
      Throw(ErrorCode::kInvalidArgument, "operator ", op, " has ", schema_->expected_outputs(),
            " outputs; say how many with InvokeOptions::num_outputs",
            schema_->has_arity_function()
                ? ", or once for all in its parseAttrs (REGISTER_OP(…).setParseAttrs(f))"
                : "");
    for (int i = 0; i < num_outputs; ++i) def_.Output(StrCat("output ", i));
    Place place = MakePlace();
    std::unique_ptr<Base> made = CreateOperator(def_, place.workspace.get());
    SetOperator(std::move(made), std::move(place));
    for (const Kernel* kernel : OpRegistry::Global().FindKernels(op, def_.device().type))
      selects_ |= OpRegistry::Global().BackendRank(kernel->backend) > 0;
    if (selects_) selected_for_.resize(inputs_.size());
  }

  // Runs on `inputs` and returns new outputs. Errors: kInvalidArgument for a wrong count or what
  // inference finds wrong with the shapes; whatever the operator throws.
  std::vector<Tensor> operator()(std::span<const Tensor> inputs) {
    std::vector<Tensor> results(outputs_.size());
    Run(inputs, results);
    return results;
  }
  std::vector<Tensor> operator()(std::initializer_list<Tensor> inputs) {
    return (*this)(std::span(inputs.begin(), inputs.size()));
  }
  // Runs into `outputs`, whose memory is reused where it fits. On an Error they are as they were,
  // but for contents that the operator had begun to write.
  void Run(std::span<const Tensor> inputs, std::span<Tensor> outputs) {
    if (inputs.size() != inputs_.size() || outputs.size() != outputs_.size())
      Throw(ErrorCode::kInvalidArgument, "operator ", def_.type(), " was resolved for ",
            inputs_.size(), " inputs and ", outputs_.size(), " outputs, but called with ",
            inputs.size(), " and ", outputs.size());
    const Release release{*this};
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs_[i]) *inputs_[i] = inputs[i];
    if (selects_ && !IsSelected()) [[unlikely]]
      Select();
    if (checks_shapes_ && !op_->inference().IsFresh(inputs_)) [[unlikely]] {
      op_->inference().Infer(
          def_, inputs_, [this](InferenceContext& context) { schema_->Infer(context); }, [] {});
      op_->inference().Keep();
    }
    for (size_t o = 0; o < outputs.size(); ++o) *outputs_[o]->GetMutable<Tensor>() = outputs[o];
    op_->Run();
    for (const Blob* output : outputs_)
      if (!output->IsType<Tensor>()) [[unlikely]]
        Throw(ErrorCode::kTypeMismatch, "'", output->name(), "' of operator ", def_.type(),
              " is not a tensor; run it in a workspace to get it");
    for (const Blob* output : outputs_)
      if (!output->Get<Tensor>().initialized()) [[unlikely]]
        Throw(ErrorCode::kOperatorFailed, "operator ", def_.type(), " returned without making '",
              output->name(), "'; get it with Output(i, shape, dtype) and write to it");
    for (size_t o = 0; o < outputs.size(); ++o)
      outputs[o] = std::move(*outputs_[o]->GetMutable<Tensor>());
  }

  // The one in use. Where kernels are selected, a call with new dtypes or shapes replaces it, and
  // with it its observers.
  OperatorBase& op() { return *op_; }

 private:
  static std::vector<bool> AllPresent(const std::string& op, int num_inputs) {
    if (num_inputs < 0)
      Throw(ErrorCode::kInvalidArgument, "operator ", op, " cannot have ", num_inputs, " inputs");
    return std::vector<bool>(static_cast<size_t>(num_inputs), true);
  }
  // Of one operator: one that keeps a state in its workspace is not in the next one's way.
  struct Place {
    std::unique_ptr<Workspace> workspace;
    std::vector<Tensor*> inputs;
  };
  OPKIT_COLD Place MakePlace() const {
    Place place{std::make_unique<Workspace>(), {}};
    for (const std::string& name : def_.inputs())
      place.inputs.push_back(name.empty() ? nullptr : place.workspace->CreateTensor(name));
    return place;
  }
  OPKIT_COLD void SetOperator(std::unique_ptr<Base> op, Place place) {
    std::vector<Blob*> outputs;
    for (const std::string& name : def_.outputs())
      outputs.push_back(place.workspace->GetBlob(name));
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i]) *place.inputs[i] = std::move(*inputs_[i]);
    op_ = std::move(op);
    workspace_ = std::move(place.workspace);
    inputs_ = std::move(place.inputs);
    outputs_ = std::move(outputs);
    checks_shapes_ = schema_->has_inference() && !op_->InfersOutputs();
  }
  // What the operator was selected for, by input.
  struct Selected {
    DType dtype = DType::kUndefined;
    Shape shape;
  };
  bool IsSelected() const {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i] && (inputs_[i]->dtype() != selected_for_[i].dtype ||
                         inputs_[i]->shape() != selected_for_[i].shape))
        return false;
    return true;
  }
  // The first candidate that takes the inputs as they are now.
  OPKIT_COLD OPKIT_IMAGE_LOCAL void Select() {
    std::vector<TensorInfo> infos;
    for (const Tensor* input : inputs_)
      infos.push_back(input && input->initialized() ? TensorInfo::Of(*input) : TensorInfo());
    const std::vector<TensorInfo> outputs = schema_->InferOutputs(def_, infos);
    Place place = MakePlace();
    std::unique_ptr<Base> op = CreateSelected(def_, place.workspace.get(), infos, outputs);
    SetOperator(std::move(op), std::move(place));
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i]) selected_for_[i] = {inputs_[i]->dtype(), inputs_[i]->shape()};
  }
  // Leaves the workspace's tensors without memory, and unspecified until the next call sets them.
  struct Release {
    BasicResolvedOperator& self;
    ~Release() {
      for (Tensor* input : self.inputs_)
        if (input) const Tensor dropped = std::move(*input);
      for (Blob* output : self.outputs_)
        if (output->IsType<Tensor>())
          const Tensor dropped = std::move(*output->GetMutable<Tensor>());
    }
  };

  const OpSchema* schema_;
  std::unique_ptr<Workspace> workspace_;
  OperatorDef def_;
  std::unique_ptr<Base> op_;
  std::vector<Tensor*> inputs_;  // in the workspace; null where left out
  std::vector<Blob*> outputs_;
  bool checks_shapes_ = false;  // before the run, for an operator that does not
  bool selects_ = false;        // some kernel's place depends on the inputs
  std::vector<Selected> selected_for_;
};
using ResolvedOperator = BasicResolvedOperator<OperatorBase>;

namespace detail {

// False where an optional input is left out.
template <class Tensors>
std::vector<bool> PresentInputs(const Tensors& inputs) {
  std::vector<bool> present;
  for (const auto& input : inputs) present.push_back(input.dtype() != DType::kUndefined);
  return present;
}

}  // namespace detail

// Calls operator `op` once, with the default order of kernels on the device of the first input. A
// default-constructed Tensor leaves an optional input out. Errors: as CreateOperator and Run.
//
//   std::vector<Tensor> out = Invoke("Axpy", {x, y}, {{"alpha", 2.f}});
template <class Resolved = ResolvedOperator>
OPKIT_IMAGE_LOCAL std::vector<Tensor> Invoke(const std::string& op,
                                             const std::vector<Tensor>& inputs, Arguments args = {},
                                             InvokeOptions options = {}) {
  for (const Tensor& input : inputs)
    if (!options.device && input.dtype() != DType::kUndefined) options.device = input.device();
  return Resolved(op, detail::PresentInputs(inputs), std::move(args), options)(inputs);
}

}  // namespace opkit

#endif  // OPKIT_OP_INVOKE_HPP_
