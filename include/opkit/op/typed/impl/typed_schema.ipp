// TypedSchema's definitions: the schema of a table of parameters, and inference by shape rules.
#ifndef OPKIT_OP_TYPED_IMPL_TYPED_SCHEMA_IPP_
#define OPKIT_OP_TYPED_IMPL_TYPED_SCHEMA_IPP_

#include "opkit/base/algorithm.hpp"
#include "opkit/base/index.hpp"
#include "opkit/op/typed/typed_schema.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns a text such as "x: float32, y?: T -> z: T out, alpha: float"; the texts are equal for
// functions with equal schemas.
OPKIT_COLD inline std::string TypedSignatureText(std::span<const TypedParameter> rows) {
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

OPKIT_COLD OPKIT_INLINE IntrusivePtr<TypedSchema> TypedSchema::Make(
    const char* name, const char* file, int line, std::span<const TypedParameter> rows) {
  OpSchema& schema = OpRegistry::Global().AddSchema(name, file, line, TypedSignatureText(rows));
  auto typed = MakeIntrusive<TypedSchema>(schema, rows);
  schema.Inplace([typed](int in, int out) { return Contains(typed->inplace_, std::pair(in, out)); })
      .Infer([typed](InferenceContext& context) { typed->Infer(context); });
  return typed;
}
OPKIT_COLD OPKIT_INLINE TypedSchema::TypedSchema(OpSchema& filled,
                                                 std::span<const TypedParameter> rows)
    : schema(filled), rows_(rows) {
  int inputs = 0, required_inputs = 0, outputs = 0;
  for (const TypedParameter& row : rows) {
    if (IsAttribute(row.kind)) {
      schema.Arg({row.name.str(), "", true, row.attribute, {}});
      continue;
    }
    Describe(row, {}, row.by_element ? std::vector<DType>() : std::vector{row.dtype});
    if (row.kind == ParameterKind::kIn) {
      required_inputs = row.place + 1;
      if (row.by_element && element_input_ < 0) element_input_ = row.place;
    }
    ++(IsInput(row.kind) ? inputs : outputs);
  }
  schema.NumInputs(required_inputs, inputs).NumOutputs(outputs);
}

// Merges all known shapes of these inputs and outputs and sets the result for all of them.
inline void InferSameShape(const OpSchema& schema, InferenceContext& context,
                           const std::vector<int>& inputs, const std::vector<int>& outputs) {
  const auto name = [&](int i) {
    return StrCat("input ", i, " '", schema.inputs()[Index(i)].name, "'");
  };
  SymbolicShape shape;
  for (int o : outputs)
    if (auto merged = SymbolicShape::Merge(shape, context.output(o).shape))
      shape = *std::move(merged);
  int first = -1;
  for (int i : inputs) {
    if (!context.HasInput(i)) continue;
    auto merged = SymbolicShape::Merge(shape, context.input_shape(i));
    if (!merged)
      Throw(ErrorCode::kInvalidArgument, name(i), " of ", context.def(), " has shape ",
            context.input_shape(i), ", but must have that of ",
            first < 0 ? "the output" : name(first), ", ", shape);
    shape = *std::move(merged);
    if (first < 0) first = i;
  }
  for (int i : inputs)
    if (context.HasInput(i)) context.SetInput(i, DType::kUndefined, shape);
  for (int o : outputs) context.SetOutput(o, DType::kUndefined, shape);
}
OPKIT_COLD OPKIT_INLINE void TypedSchema::SameShape(std::initializer_list<int> inputs,
                                                    std::initializer_list<int> outputs) {
  std::vector<int> ins, outs;
  for (const int place : inputs)
    if (place >= 0) ins.push_back(place);
  for (const int place : outputs)
    if (place >= 0) outs.push_back(place);
  AddRule([this, ins = std::move(ins), outs = std::move(outs)](InferenceContext& context) {
    InferSameShape(schema, context, ins, outs);
  });
}
OPKIT_COLD OPKIT_INLINE void TypedSchema::AddKernel(DeviceType device, const TypedKernel& typed,
                                                    MakeTyped make) noexcept {
  try {
    for (const TypedVersion& version : typed.versions)
      if (version.element != DType::kUndefined && !Contains(element_types_, version.element))
        element_types_.push_back(version.element);
    for (const TypedParameter& row : rows_) {
      if (!row.by_element || IsAttribute(row.kind)) continue;
      const auto& values = IsInput(row.kind) ? schema.inputs() : schema.outputs();
      Describe(row, values[Index(row.place)].doc, element_types_);
    }
    Kernel kernel;
    kernel.op = schema.name();
    kernel.device = device;
    kernel.file = schema.file();
    kernel.line = schema.line();
    kernel.typed = &typed;
    kernel.make_typed = make;
    OpRegistry::Global().AddKernel(std::move(kernel));
  } catch (...) {  // out of memory: the first lookup reports a missing kernel
  }
}
OPKIT_INLINE void TypedSchema::AddProblem(std::string_view what) {
  OpRegistry::Global().AddProblem(
      schema.name(), StrCat("the schema of operator ", schema.name(), " at ", schema.file(), ":",
                            schema.line(), " is not whole: ", what));
}

OPKIT_COLD OPKIT_INLINE void TypedSchema::Describe(const TypedParameter& row, std::string doc,
                                                   std::vector<DType> dtypes) {
  const auto describe = IsInput(row.kind) ? &OpSchema::Input : &OpSchema::Output;
  (schema.*describe)(row.place, row.name.str(), std::move(doc), std::move(dtypes));
}
OPKIT_INLINE void TypedSchema::Infer(InferenceContext& context) {
  for (const TypedParameter& row : rows_) {
    if (IsAttribute(row.kind)) continue;
    const DType dtype = row.by_element ? context.input_dtype(element_input_) : row.dtype;
    if (IsOutput(row.kind))
      context.SetOutput(row.place, dtype, {});
    else if (context.HasInput(row.place))
      context.SetInput(row.place, dtype, {});
  }
  for (auto& rule : rules_) rule(context);
}
}}}  // namespace opkit::detail

#endif  // OPKIT_OP_TYPED_IMPL_TYPED_SCHEMA_IPP_
