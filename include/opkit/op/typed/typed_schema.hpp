// TypedSchema: an OpSchema filled in from the table of a typed operator's parameters, and the shape
// rules that its builder adds, run in order as the schema's inference.
#ifndef OPKIT_OP_TYPED_TYPED_SCHEMA_HPP_
#define OPKIT_OP_TYPED_TYPED_SCHEMA_HPP_

#include "opkit/op/op_registry.hpp"
#include "opkit/op/typed/typed_signature.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Shared by the builder and the schema's functions. A template over OpSchema, so that programs
// without typed operators do not compile it.
template <class Schema>
class OPKIT_IMAGE_LOCAL BasicTypedSchema final : public RefCounted {
 public:
  OPKIT_COLD static IntrusivePtr<BasicTypedSchema> Make(const char* name, const char* file,
                                                        int line,
                                                        std::span<const TypedParameter> rows) {
    auto typed = MakeIntrusive<BasicTypedSchema>(
        OpRegistry::Global().AddSchema(name, file, line, Signature(rows)), rows);
    typed->schema.AllowInplace([typed](int in, int out) { return typed->CanInplace(in, out); })
        .TensorInferenceFunction([typed](InferenceContext& context) { typed->Infer(context); });
    return typed;
  }
  OPKIT_COLD BasicTypedSchema(Schema& filled, std::span<const TypedParameter> rows)
      : schema(filled) {
    int required_inputs = 0;
    for (const TypedParameter& row : rows) {
      if (IsAttribute(row.kind)) {
        schema.Arg({row.name.str(), "", true, row.attribute, {}});
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

  // Negative places are those of names on the other side.
  OPKIT_COLD void SameShape(std::initializer_list<int> inputs, std::initializer_list<int> outputs) {
    auto places = [](std::initializer_list<int> all) {
      std::vector<int> out;
      for (int place : all)
        if (place >= 0) out.push_back(place);
      return out;
    };
    AddRule([this, ins = places(inputs), outs = places(outputs)](InferenceContext& context) {
      InferSameShape(context, ins, outs);
    });
  }
  void AddRule(UniqueFunction<void(InferenceContext&)> rule) { rules_.push_back(std::move(rule)); }
  // The element types of a kernel, besides those of the kernels before it.
  OPKIT_COLD void AddElementTypes(std::initializer_list<DType> dtypes) {
    for (DType dtype : dtypes) {
      bool known = false;
      for (DType one : element_types_) known |= one == dtype;
      if (!known) element_types_.push_back(dtype);
    }
    for (const TypedParameter& row : by_element_) {
      const auto& values = IsInput(row.kind) ? schema.inputs() : schema.outputs();
      Describe(row, values[static_cast<size_t>(row.place)].doc, element_types_);
    }
  }
  OPKIT_COLD void AddProblem(std::string_view what) {
    OpRegistry::Global().AddProblem(
        schema.name(), StrCat("the schema of operator ", schema.name(), " at ", schema.file(), ":",
                              schema.line(), " is not whole: ", what));
  }

  Schema& schema;
  std::vector<std::pair<int, int>> inplace;

 private:
  // "x: float32, y?: T -> z: T, alpha: float": equal for functions that make equal schemas.
  OPKIT_COLD static std::string Signature(std::span<const TypedParameter> rows) {
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
  void Describe(const TypedParameter& row, std::string doc, std::vector<DType> dtypes) {
    if (IsInput(row.kind)) {
      schema.Input(row.place, row.name.str(), std::move(doc), std::move(dtypes));
    } else {
      schema.Output(row.place, row.name.str(), std::move(doc), std::move(dtypes));
    }
  }
  bool CanInplace(int in, int out) const {
    for (const auto& pair : inplace)
      if (pair.first == in && pair.second == out) return true;
    return false;
  }
  OPKIT_COLD void Infer(InferenceContext& context) {
    for (size_t i = 0; i < input_dtypes_.size(); ++i) {
      const int input = static_cast<int>(i);
      if (context.HasInput(input)) context.SetInput(input, DTypeOf(context, input_dtypes_[i]), {});
    }
    for (size_t o = 0; o < output_dtypes_.size(); ++o)
      context.SetOutput(static_cast<int>(o), DTypeOf(context, output_dtypes_[o]), {});
    for (auto& rule : rules_) rule(context);
  }
  DType DTypeOf(const InferenceContext& context, DType declared) const {
    return declared == DType::kUndefined && element_input_ >= 0
               ? context.input_dtype(element_input_)
               : declared;
  }
  // One shape for all of these inputs and outputs, from what is known of any of them.
  OPKIT_COLD void InferSameShape(InferenceContext& context, const std::vector<int>& inputs,
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
        Throw(ErrorCode::kInvalidArgument, InputName(i), " of ", ToString(context.def()),
              " has shape ", ToString(context.input_shape(i)), ", but must have that of ",
              first < 0 ? "the output" : InputName(first), ", ", ToString(shape));
      shape = *std::move(merged);
      if (first < 0) first = i;
    }
    for (int i : inputs)
      if (context.HasInput(i)) context.SetInput(i, DType::kUndefined, shape);
    for (int o : outputs) context.SetOutput(o, DType::kUndefined, shape);
  }
  std::string InputName(int i) const {
    return StrCat("input ", i, " '", schema.inputs()[static_cast<size_t>(i)].name, "'");
  }

  std::vector<UniqueFunction<void(InferenceContext&)>> rules_;
  std::vector<DType> input_dtypes_, output_dtypes_;  // kUndefined where the element type decides
  std::vector<TypedParameter> by_element_;
  std::vector<DType> element_types_;
  int element_input_ = -1;
};

using TypedSchema = BasicTypedSchema<OpSchema>;
using TypedSchemaPtr = IntrusivePtr<TypedSchema>;

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_TYPED_TYPED_SCHEMA_HPP_
