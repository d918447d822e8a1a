// TypedSchema's definitions: the schema of a table of parameters, and inference by shape rules.
#ifndef OPKIT_OP_TYPED_IMPL_TYPED_SCHEMA_IPP_
#define OPKIT_OP_TYPED_IMPL_TYPED_SCHEMA_IPP_

#include <algorithm>

#include "opkit/base/index.hpp"
#include "opkit/op/typed/typed_schema.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// "x: float32, y?: T -> z: T, alpha: float": equal for functions that make equal schemas.
inline std::string TypedSignatureText(std::span<const TypedParameter> rows) {
  std::string inputs, rest;
  for (const TypedParameter& row : rows) {
    std::string& out = IsInput(row.kind) ? inputs : rest;
    out += StrCat(out.empty() ? "" : ", ", row.name.str(),
                  row.kind == ParameterKind::kOptionalIn ? "?: " : ": ",
                  row.by_element          ? "T"
                  : IsAttribute(row.kind) ? ToString(row.attribute)
                                          : ToString(row.dtype),
                  IsOutput(row.kind) ? " out" : "");
  }
  return inputs + " -> " + rest;
}

OPKIT_INLINE IntrusivePtr<TypedSchema> TypedSchema::Make(const char* name, const char* file,
                                                         int line,
                                                         std::span<const TypedParameter> rows) {
  OpSchema& schema = OpRegistry::Global().AddSchema(name, file, line, TypedSignatureText(rows));
  auto typed = MakeIntrusive<TypedSchema>(schema, rows);
  schema
      .AllowInplace([typed](int in, int out) {
        const auto& pairs = typed->inplace_;
        return std::find(pairs.begin(), pairs.end(), std::pair(in, out)) != pairs.end();
      })
      .TensorInferenceFunction([typed](InferenceContext& context) { typed->Infer(context); });
  return typed;
}
OPKIT_INLINE TypedSchema::TypedSchema(OpSchema& filled, std::span<const TypedParameter> rows)
    : schema(filled) {
  int required_inputs = 0;
  for (const TypedParameter& row : rows) {
    if (IsAttribute(row.kind)) {
      schema.Arg(row.name.str(), "", row.attribute, std::nullopt, true);
      continue;
    }
    Describe(row, {}, row.by_element ? std::vector<DType>() : std::vector{row.dtype});
    if (row.by_element) by_element_.push_back(row);
    if (row.kind == ParameterKind::kIn) {
      required_inputs = row.place + 1;
      if (row.by_element && element_input_ < 0) element_input_ = row.place;
    }
    (IsInput(row.kind) ? input_dtypes_ : output_dtypes_).push_back(row.dtype);
  }
  schema.NumInputs(required_inputs, static_cast<int>(input_dtypes_.size()))
      .NumOutputs(static_cast<int>(output_dtypes_.size()));
}
OPKIT_INLINE TypedSchema::~TypedSchema() = default;

OPKIT_INLINE void TypedSchema::SameShape(std::initializer_list<int> inputs,
                                         std::initializer_list<int> outputs) {
  std::vector<int> ins(inputs), outs(outputs);
  for (std::vector<int>* places : {&ins, &outs})
    std::erase_if(*places, [](int place) { return place < 0; });
  AddRule([this, ins = std::move(ins), outs = std::move(outs)](InferenceContext& context) {
    InferSameShape(context, ins, outs);
  });
}
OPKIT_INLINE void TypedSchema::AddRule(UniqueFunction<void(InferenceContext&)> rule) {
  rules_.push_back(std::move(rule));
}
OPKIT_INLINE void TypedSchema::AddElementTypes(std::initializer_list<DType> dtypes) {
  for (DType dtype : dtypes)
    if (std::find(element_types_.begin(), element_types_.end(), dtype) == element_types_.end())
      element_types_.push_back(dtype);
  for (const TypedParameter& row : by_element_) {
    const auto& values = IsInput(row.kind) ? schema.inputs() : schema.outputs();
    Describe(row, values[Index(row.place)].doc, element_types_);
  }
}
OPKIT_INLINE void TypedSchema::AddProblem(std::string_view what) {
  OpRegistry::Global().AddProblem(
      schema.name(), StrCat("the schema of operator ", schema.name(), " at ", schema.file(), ":",
                            schema.line(), " is not whole: ", what));
}

OPKIT_INLINE void TypedSchema::Describe(const TypedParameter& row, std::string doc,
                                        std::vector<DType> dtypes) {
  const auto describe = IsInput(row.kind) ? &OpSchema::Input : &OpSchema::Output;
  (schema.*describe)(row.place, row.name.str(), std::move(doc), std::move(dtypes));
}
OPKIT_INLINE void TypedSchema::Infer(InferenceContext& context) {
  for (int i = 0; DType declared : input_dtypes_) {
    if (context.HasInput(i)) context.SetInput(i, DTypeOf(context, declared), {});
    ++i;
  }
  for (int o = 0; DType declared : output_dtypes_)
    context.SetOutput(o++, DTypeOf(context, declared), {});
  for (auto& rule : rules_) rule(context);
}
OPKIT_INLINE DType TypedSchema::DTypeOf(const InferenceContext& context, DType declared) const {
  return declared == DType::kUndefined && element_input_ >= 0 ? context.input_dtype(element_input_)
                                                              : declared;
}
// One shape for all of these inputs and outputs, from what is known of any of them.
OPKIT_INLINE void TypedSchema::InferSameShape(InferenceContext& context,
                                              const std::vector<int>& inputs,
                                              const std::vector<int>& outputs) const {
  SymbolicShape shape;
  for (int o : outputs)
    if (auto merged = SymbolicShape::Merge(shape, context.output(o).shape))
      shape = *std::move(merged);
  int first = -1;
  for (int i : inputs) {
    if (!context.HasInput(i)) continue;
    auto merged = SymbolicShape::Merge(shape, context.input_shape(i));
    if (!merged)
      Throw(ErrorCode::kInvalidArgument, InputName(i), " of ", context.def(), " has shape ",
            context.input_shape(i), ", but must have that of ",
            first < 0 ? "the output" : InputName(first), ", ", shape);
    shape = *std::move(merged);
    if (first < 0) first = i;
  }
  for (int i : inputs)
    if (context.HasInput(i)) context.SetInput(i, DType::kUndefined, shape);
  for (int o : outputs) context.SetOutput(o, DType::kUndefined, shape);
}
OPKIT_INLINE std::string TypedSchema::InputName(int i) const {
  return StrCat("input ", i, " '", schema.inputs()[Index(i)].name, "'");
}

}  // namespace detail

}  // namespace opkit

#endif  // OPKIT_OP_TYPED_IMPL_TYPED_SCHEMA_IPP_
