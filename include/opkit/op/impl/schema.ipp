// OpSchema's definitions: ready-made rules, verification, inference and cost of a node.
#ifndef OPKIT_OP_IMPL_SCHEMA_IPP_
#define OPKIT_OP_IMPL_SCHEMA_IPP_

#include "opkit/base/index.hpp"
#include "opkit/op/schema.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

inline void InferLike(InferenceContext& context, int input, int output) {
  context.SetOutput(output, context.input_dtype(input), context.input_shape(input));
  context.SetInput(input, context.output(output).dtype, context.output(output).shape);
}
inline void Describe(std::vector<ValueSchema>& values, int i, ValueSchema value) {
  if (values.size() <= Index(i)) values.resize(Index(i) + 1);
  values[Index(i)] = std::move(value);
}
inline OpCost Traffic(const std::vector<TensorInfo>& inputs,
                      const std::vector<TensorInfo>& outputs) {
  OpCost cost;
  for (const TensorInfo& input : inputs) cost.bytes_read += OpSchema::Bytes(input);
  for (const TensorInfo& output : outputs) cost.bytes_written += OpSchema::Bytes(output);
  return cost;
}

}  // namespace detail

OPKIT_INLINE OpSchema::OpSchema(std::string name, const char* file, int line, std::string signature)
    : name_(std::move(name)), file_(file), line_(line), signature_(std::move(signature)) {}

OPKIT_INLINE OpSchema& OpSchema::NumInputs(std::initializer_list<int> allowed) {
  return arity_.inputs.SetList(allowed), *this;
}
OPKIT_INLINE OpSchema& OpSchema::NumInputs(UniqueFunction<bool(int)> allowed) {
  return arity_.inputs.SetPredicate(std::move(allowed)), *this;
}
OPKIT_INLINE OpSchema& OpSchema::NumOutputs(std::initializer_list<int> allowed) {
  return arity_.outputs.SetList(allowed), *this;
}
OPKIT_INLINE OpSchema& OpSchema::NumOutputs(UniqueFunction<bool(int)> allowed) {
  return arity_.outputs.SetPredicate(std::move(allowed)), *this;
}
OPKIT_INLINE OpSchema& OpSchema::SameNumberOfOutput() {
  return OutputCalculator([](int inputs) { return inputs; });
}
OPKIT_INLINE OpSchema& OpSchema::MutatesInputs(std::initializer_list<int> inputs) {
  return MutatesInputs([list = std::vector<int>(inputs)](const OperatorDef&) { return list; });
}
OPKIT_INLINE OpSchema& OpSchema::AllowInplace(std::initializer_list<std::pair<int, int>> pairs) {
  return AllowInplace(detail::InplaceRules::AnyOf(pairs));
}
OPKIT_INLINE OpSchema& OpSchema::AllowOneToOneInplace() {
  return AllowInplace(&detail::InplaceRules::OneToOne);
}
OPKIT_INLINE OpSchema& OpSchema::EnforceInplace(std::initializer_list<std::pair<int, int>> pairs) {
  return EnforceInplace(detail::InplaceRules::AnyOf(pairs));
}
OPKIT_INLINE OpSchema& OpSchema::EnforceOneToOneInplace() {
  return EnforceInplace(&detail::InplaceRules::OneToOne);
}
OPKIT_INLINE OpSchema& OpSchema::Arg(std::string name, std::string doc,
                                     std::optional<AttributeType> type,
                                     std::optional<Attribute> default_value, bool required) {
  attributes_.declared.push_back(
      {std::move(name), std::move(doc), required, type, std::move(default_value)});
  return *this;
}
OPKIT_INLINE OpSchema& OpSchema::SetDefault(std::string_view name, Attribute value) {
  for (AttributeSchema& attribute : attributes_.declared) {
    if (attribute.name != name) continue;
    attribute.required = false;
    attribute.default_value = std::move(value);
    return *this;
  }
  problem_ = StrCat("the schema of operator ", name_, " at ", file_, ":", line_,
                    " has no argument '", name, "' to give a default");
  return *this;
}

OPKIT_INLINE OpSchema& OpSchema::IdenticalTypeAndShape() {
  return TensorInferenceFunction([](InferenceContext& c) {
    for (int i = 0; i < c.num_outputs() && i < c.num_inputs(); ++i) detail::InferLike(c, i, i);
  });
}
OPKIT_INLINE OpSchema& OpSchema::IdenticalTypeAndShapeOfInput(int input) {
  return TensorInferenceFunction([input](InferenceContext& c) {
    for (int i = 0; i < c.num_outputs(); ++i) detail::InferLike(c, input, i);
  });
}
OPKIT_INLINE OpSchema& OpSchema::IdenticalTypeAndShapeOfMultipleInputs(std::vector<int> inputs) {
  return TensorInferenceFunction([inputs = std::move(inputs)](InferenceContext& c) {
    for (int i = 0; int input : inputs) detail::InferLike(c, input, i++);
  });
}
OPKIT_INLINE OpSchema& OpSchema::IdenticalTypeAndShapeOfInputDim(int input, int dim) {
  return TensorInferenceFunction([=](InferenceContext& c) {
    const SymbolicShape& in = c.input_shape(input);
    const int axis = in.has_rank() && dim < 0 ? dim + in.rank() : dim;
    if (in.has_rank() && (axis < 0 || axis >= in.rank()))
      Throw(ErrorCode::kInvalidArgument, "input ", input, " has shape ", in, ", which has no axis ",
            dim);
    c.SetOutput(0, c.input_dtype(input), {in.has_rank() ? in[axis] : Dim()});
  });
}
OPKIT_INLINE OpSchema& OpSchema::ScalarType(DType dtype) {
  return TensorInferenceFunction([dtype](InferenceContext& c) {
    for (int i = 0; i < c.num_outputs(); ++i) c.SetOutput(i, dtype, Shape{});
  });
}
OPKIT_INLINE OpSchema& OpSchema::PointwiseCost(uint64_t flops) {
  return CostInferenceFunction([flops](const OperatorDef&, const std::vector<TensorInfo>& inputs,
                                       const std::vector<TensorInfo>& outputs) {
    OpCost cost = detail::Traffic(inputs, outputs);
    if (!outputs.empty()) cost.flops = flops * Elements(outputs[0]);
    return cost;
  });
}
OPKIT_INLINE OpSchema& OpSchema::Input(int i, std::string name, std::string doc,
                                       std::vector<DType> dtypes) {
  detail::Describe(inputs_, i, {std::move(name), std::move(doc), std::move(dtypes)});
  return *this;
}
OPKIT_INLINE OpSchema& OpSchema::Output(int i, std::string name, std::string doc,
                                        std::vector<DType> dtypes) {
  detail::Describe(outputs_, i, {std::move(name), std::move(doc), std::move(dtypes)});
  return *this;
}
OPKIT_INLINE OpSchema& OpSchema::SetElementTypes(const std::vector<DType>& dtypes) {
  for (auto* values : {&inputs_, &outputs_})
    for (ValueSchema& value : *values)
      if (value.dtypes.empty()) value.dtypes = std::vector<DType>(dtypes);
  return *this;
}

OPKIT_INLINE int OpSchema::CalculateOutput(int inputs, const Arguments& args) const {
  const int outputs = arity_.of_arguments ? arity_.of_arguments(args).second : -1;
  return outputs >= 0 ? outputs : CalculateOutput(inputs);
}
OPKIT_INLINE std::vector<int> OpSchema::MutatedInputs(const OperatorDef& def) const {
  return mutates_ ? mutates_(def) : std::vector<int>();
}
OPKIT_INLINE std::vector<Tensor> OpSchema::MakeTestInputs(DType dtype, uint64_t seed) const {
  return test_inputs_ ? test_inputs_(dtype, seed) : std::vector<Tensor>();
}

OPKIT_INLINE std::string OpSchema::Verify(const OperatorDef& def) const {
  if (!problem_.empty()) return problem_;
  if (std::string why = arity_.Verify(name_, def); !why.empty()) return why;
  if (std::string why = inplace_.Verify(name_, def); !why.empty()) return why;
  return attributes_.Verify(name_, def.args());
}
OPKIT_INLINE void OpSchema::Infer(InferenceContext& context) const {
  if (!infer_) return;
  if (needs_all_shapes_)
    for (int i = 0; i < context.num_inputs(); ++i)
      if (context.HasInput(i) && !context.input(i).shape.is_known()) return;
  try {
    infer_(context);
  } catch (Error& error) {
    std::string inputs;
    for (const TensorInfo& input : context.inputs()) inputs += " " + ToString(input);
    error.AddContext(StrCat("in shape inference of ", context.def(), " with inputs", inputs));
    throw;
  }
}
OPKIT_INLINE std::vector<TensorInfo> OpSchema::InferOutputs(const OperatorDef& def,
                                                            std::vector<TensorInfo> inputs) const {
  InferenceContext context(def, std::move(inputs));
  Infer(context);
  return std::move(context.outputs());
}
OPKIT_INLINE OpCost OpSchema::Cost(const OperatorDef& def, const std::vector<TensorInfo>& inputs,
                                   const std::vector<TensorInfo>& outputs) const {
  return cost_ ? cost_(def, inputs, outputs) : detail::Traffic(inputs, outputs);
}
OPKIT_INLINE OpSchema::DevicePlacement OpSchema::InferDevices(const OperatorDef& def) const {
  if (devices_) return devices_(def);
  return {std::vector<Device>(def.inputs().size(), def.device()),
          std::vector<Device>(def.outputs().size(), def.device())};
}

OPKIT_INLINE uint64_t OpSchema::Elements(const TensorInfo& info) {
  return info.shape.is_known() ? static_cast<uint64_t>(info.shape.ToShape().numel()) : 0;
}
OPKIT_INLINE uint64_t OpSchema::Bytes(const TensorInfo& info) {
  constexpr uint64_t kMost = ~uint64_t{0} >> 1;
  uint64_t bytes = 0;
  const auto item = static_cast<uint64_t>(ItemSize(info.dtype));
  return __builtin_mul_overflow(Elements(info), item, &bytes) || bytes > kMost ? kMost : bytes;
}

}  // namespace opkit

#endif  // OPKIT_OP_IMPL_SCHEMA_IPP_
