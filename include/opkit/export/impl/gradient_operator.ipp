// The definitions of gradient_operator.hpp.
#ifndef OPKIT_EXPORT_IMPL_GRADIENT_OPERATOR_IPP_
#define OPKIT_EXPORT_IMPL_GRADIENT_OPERATOR_IPP_

#include <map>

#include "opkit/export/gradient_operator.hpp"
#include "opkit/op/gradient/gradient.hpp"
#include "opkit/op/invoke.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the node of the operator whose gradient `def` computes: `def` has the gradients of its
// outputs, its outputs and its inputs.
inline OperatorDef ForwardNode(const OperatorDef& def, const OpSchema& of) {
  const auto outputs = Index(of.min_outputs());
  OperatorDef forward(of.name(), {}, {}, def.args());
  for (size_t i = 0; i < def.inputs().size(); ++i) {
    const bool given = !def.inputs()[i].empty();
    if (i >= 2 * outputs)
      forward.Input(given ? StrCat("input ", i - 2 * outputs) : std::string());
    else if (i >= outputs)
      forward.Output(StrCat("output ", i - outputs));
  }
  forward.Device(def.device()).Backends(def.backends());
  return forward;
}

// Runs the operators of a gradient maker.
class OPKIT_IMAGE_LOCAL GradientOperator final : public Operator<CPUContext> {
 public:
  GradientOperator(const OperatorDef& def, Workspace* ws, const OpSchema& of)
      : Operator<CPUContext>(def, ws),
        forward_(ForwardNode(def, of)),
        num_outputs_(of.min_outputs()) {}

  bool RunOnDevice() override {
    std::vector<bool> flows;
    for (int o = 0; o < num_outputs_; ++o)
      flows.push_back(IsFloatingPoint(Input(num_outputs_ + o).dtype()));
    if (!made_ || flows != flows_) Make(std::move(flows));

    std::vector<Tensor> values(num_values_);
    for (int i = 0; i < InputSize(); ++i)
      if (HasInput(i)) values[Index(i)] = Input(i);
    const int first = 2 * num_outputs_;
    for (int i = 0; i < OutputSize(); ++i) {
      const bool given = HasInput(first + i);
      Tensor* const out = given ? Output(i, Input(first + i).shape(), Input(first + i).dtype())
                                : Output(i, Shape{0}, DType::kFloat32);
      // An operator writes its result into the output at once.
      const int value = gradients_[Index(i)];
      if (value >= InputSize()) values[Index(value)] = *out;
    }
    for (Step& step : steps_) step.Run(values);
    for (int i = 0; i < OutputSize(); ++i)
      if (HasInput(first + i)) Finish(i, Input(first + i), values);
    return true;
  }

 private:
  struct Step {
    ResolvedOperator op;
    std::vector<int> inputs, outputs;  // numbers of values; -1 is left out

    void Run(std::vector<Tensor>& values) {
      std::vector<Tensor> in, out;
      for (const int i : inputs) in.push_back(i < 0 ? Tensor() : values[Index(i)]);
      for (const int o : outputs) out.push_back(o < 0 ? Tensor() : values[Index(o)]);
      op.Run(in, out);
      for (size_t o = 0; o < outputs.size(); ++o)
        if (outputs[o] >= 0) values[Index(outputs[o])] = std::move(out[o]);
    }
  };

  // Makes the steps; `flows` says which outputs have a gradient.
  void Make(std::vector<bool> flows) {
    made_ = false;
    steps_.clear();
    std::map<std::string, int> numbers;
    for (int i = 0; i < InputSize(); ++i) {
      const size_t outputs = Index(num_outputs_), at = Index(i);
      const std::string name = at < outputs       ? StrCat("gradient ", at)
                               : at < 2 * outputs ? StrCat("output ", at - outputs)
                                                  : StrCat("input ", at - 2 * outputs);
      numbers.emplace(name, i);
    }
    num_values_ = Index(InputSize());
    const auto number = [&](const std::string& name) {
      if (name.empty()) return -1;
      const auto [found, added] = numbers.emplace(name, static_cast<int>(num_values_));
      num_values_ += added;
      return found->second;
    };

    std::vector<GradientValue> of_outputs;
    for (size_t o = 0; o < flows.size(); ++o)
      of_outputs.push_back(flows[o] ? GradientValue(StrCat("gradient ", o)) : GradientValue());
    const GradientOpsMeta gradient = GetGradientForOp(forward_, of_outputs);
    for (const OperatorDef& op : gradient.ops) {
      if (!op.subgraphs().empty())
        Throw(ErrorCode::kUnsupported, "the gradient of ", forward_.type(), " has the node ", op,
              ", which carries a graph; an exported gradient does not run graphs");
      InvokeOptions options;
      options.device = op.device();
      options.backends = op.backends();
      options.num_outputs = static_cast<int>(op.outputs().size());
      std::vector<int> present, inputs, outputs;
      for (const std::string& name : op.inputs()) {
        present.push_back(!name.empty());
        inputs.push_back(number(name));
      }
      for (const std::string& name : op.outputs()) outputs.push_back(number(name));
      steps_.push_back({ResolvedOperator(op.type(), present, op.args(), options), std::move(inputs),
                        std::move(outputs)});
    }
    gradients_.clear();
    for (size_t i = 0; i < gradient.g_input.size(); ++i) {
      if (gradient.g_input[i].IsSparse())
        Throw(ErrorCode::kUnsupported, "the gradient of input ", i, " of ", forward_.type(),
              " is sparse; hosts take dense gradients alone");
      gradients_.push_back(number(gradient.g_input[i].dense));
    }
    flows_ = std::move(flows);
    made_ = true;
  }

  // Puts the gradient of an input into its output, unless it is there.
  void Finish(int i, const Tensor& input, const std::vector<Tensor>& values) {
    Tensor* const out = Output(i, input.shape(), input.dtype());
    const int value = gradients_[Index(i)];
    if (value < 0) {
      if (out->nbytes() > 0) std::memset(out->raw_mutable_data(), 0, Index(out->nbytes()));
      return;
    }
    const Tensor& made = values[Index(value)];
    if (made.dtype() != input.dtype() || made.shape() != input.shape())
      Throw(ErrorCode::kOperatorFailed, "the gradient of input ", i, " of ", forward_.type(),
            " is ", made.dtype(), made.shape(), ", but the input is ", input.dtype(),
            input.shape());
    if (made.raw_data() != out->raw_data()) out->CopyFrom(made);
  }

  const OperatorDef forward_;
  const int num_outputs_;  // of the forward operator
  bool made_ = false;
  std::vector<bool> flows_;
  std::vector<Step> steps_;
  std::vector<int> gradients_;  // values; -1 if no gradient flows to the input
  size_t num_values_ = 0;       // the first are the inputs
};

OPKIT_INLINE std::string WhyNoGradientOperator(const OpSchema& schema) {
  const GradientRegistration* const found = GradientRegistry::Global().Find(schema.name());
  const auto why = [&](const char* reason) {
    return StrCat("operator ", schema.name(), " has no gradient for other hosts: ", reason);
  };
  if (!found) return why("none is registered; write REGISTER_GRADIENT or NO_GRADIENT");
  if (!found->problem.empty()) return why(found->problem.c_str());
  if (found->kind != GradientKind::kMaker && found->kind != GradientKind::kNone)
    return why("it is declared to have none");
  if (schema.is_stateful()) return why("it keeps state, or its runs differ");
  if (schema.needs_subgraph()) return why("it carries a graph");
  if (schema.min_outputs() != schema.max_outputs()) return why("its number of outputs varies");
  OperatorDef def(schema.name());
  for (int i = 0; i < schema.min_inputs(); ++i) def.Input(StrCat("input ", i));
  if (!schema.MutatedInputs(def).empty()) return why("it writes to its inputs");
  return {};
}

inline ValueSchema ValueOf(const std::vector<ValueSchema>& values, const char* kind, int i) {
  ValueSchema value;
  if (Index(i) < values.size()) value = values[Index(i)];
  if (value.name.empty()) value.name = StrCat(kind, i);
  return value;
}

OPKIT_INLINE const OpSchema& GradientOperatorSchema(const OpSchema& of) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const std::string name = StrCat(of.name(), "_grad");
  if (const OpSchema* known = OpRegistry::Global().FindSchema(name)) {
    if (std::string_view(known->file()) == __FILE__) return *known;
    Throw(ErrorCode::kAlreadyExists, "operator ", name, ", registered at ", known->file(), ":",
          known->line(), ", has the name of the gradient of ", of.name(),
          " in other hosts; give it another name");
  }
  if (const std::string why = WhyNoGradientOperator(of); !why.empty())
    Throw(
        GradientRegistry::Global().Find(of.name()) ? ErrorCode::kUnsupported : ErrorCode::kNotFound,
        why);

  auto owner = MakeIntrusive<Shared<OpSchema>>(OpSchema(name, __FILE__, __LINE__));
  OpSchema& schema = owner->value;
  const int outputs = of.min_outputs();
  const auto and_more = [&](int inputs) {
    return inputs == CountRule::kAny ? inputs : inputs + 2 * outputs;
  };
  schema.Internal()
      .NumInputs(and_more(of.min_inputs()), and_more(of.max_inputs()))
      .NumOutputs(of.min_inputs(), of.max_inputs())
      .OutputCalculator([outputs](int inputs) { return inputs - 2 * outputs; })
      .Doc(StrCat("The gradient of ", of.name(),
                  ", for its inputs, from the gradients of its outputs, its outputs and its "
                  "inputs."));
  for (const AttributeSchema& attribute : of.attributes()) schema.Arg(attribute);
  if (of.unknown_args_allowed() || (of.attributes().empty() && of.TakesArgument("any")))
    schema.AllowUncheckedAttributes();
  std::vector<std::string> inputs;
  for (const ValueSchema& input : of.inputs()) inputs.push_back(input.name);
  for (int o = 0; o < outputs; ++o) {
    const ValueSchema value = ValueOf(of.outputs(), "output", o);
    std::string own = value.name;
    for (const std::string& input : inputs)
      if (own == input) own += "_out";
    schema.Input(o, "grad_" + own, "the gradient of " + value.name, value.dtypes);
    schema.Input(outputs + o, own, value.doc, value.dtypes);
  }
  for (int i = 0; i < static_cast<int>(of.inputs().size()); ++i) {
    const ValueSchema value = ValueOf(of.inputs(), "input", i);
    schema.Input(2 * outputs + i, value.name, value.doc, value.dtypes);
    schema.Output(i, "grad_" + value.name, "the gradient of " + value.name);
  }
  schema.Infer([&of, outputs](InferenceContext& context) {
    const OperatorDef forward = ForwardNode(context.def(), of);
    std::vector<TensorInfo> infos(context.inputs().begin() + 2 * outputs, context.inputs().end());
    const std::vector<TensorInfo> inferred = of.InferOutputs(forward, std::move(infos));
    for (int o = 0; o < outputs; ++o) {
      const int given = outputs + o;
      context.SetInput(given, inferred[Index(o)].dtype, inferred[Index(o)].shape);
      context.SetInput(o, context.input_dtype(given), context.input_shape(given));
    }
    for (int i = 0; i < context.num_outputs(); ++i) {
      const int input = 2 * outputs + i;
      if (context.HasInput(input))
        context.SetOutput(i, context.input_dtype(input), context.input_shape(input));
      else
        context.SetOutput(i, DType::kFloat32, Shape{0});
    }
  });
  RegisterKernel(
      {name.c_str(), DeviceType::kCPU, "DEFAULT", Kernel::Priority::kDefault, __FILE__, __LINE__},
      [&of](const OperatorDef& def, Workspace* ws, const KernelConfig*) {
        return std::unique_ptr<OperatorBase>(new GradientOperator(def, ws, of));
      });
  OpRegistry::Global().AddSchema(owner, schema);
  return schema;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_EXPORT_IMPL_GRADIENT_OPERATOR_IPP_
