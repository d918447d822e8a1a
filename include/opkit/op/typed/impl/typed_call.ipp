// The definitions of TypedCall, and of the error of its attributes.
#ifndef OPKIT_OP_TYPED_IMPL_TYPED_CALL_IPP_
#define OPKIT_OP_TYPED_IMPL_TYPED_CALL_IPP_

#include "opkit/op/typed/typed_call.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE void ThrowNoElement(double value, DType dtype) {
  Throw(ErrorCode::kOutOfRange, value, ", which is no value of the inputs' dtype ", dtype);
}

// Returns the node's attribute, or the default. Throws kNotFound.
inline const Attribute& FindAttribute(const OpSchema& schema, const OperatorDef& def,
                                      const std::string& name) {
  if (const Attribute* given = def.args().Find(name)) return *given;
  const AttributeSchema* declared = schema.FindAttribute(name);
  if (!declared || !declared->default_value)
    Throw(ErrorCode::kNotFound, "operator ", def.type(), " needs the argument '", name, "'");
  return *declared->default_value;
}

OPKIT_INLINE TypedCall::TypedCall(const TypedKernel& kernel, const OpSchema& schema,
                                  const OperatorDef& def)
    : kernel_(kernel), schema_(schema), states_(new State[kernel.versions.size()]) {
  const auto leaves_out = [&](const std::vector<std::string>& names, int place) {
    return Index(place) >= names.size() || names[Index(place)].empty();
  };
  for (const TypedParameter& row : kernel.rows) {
    num_inputs_ += IsInput(row.kind);
    if ((row.kind == ParameterKind::kIn && leaves_out(def.inputs(), row.place)) ||
        (row.kind == ParameterKind::kOut && leaves_out(def.outputs(), row.place)))
      Throw(ErrorCode::kInvalidArgument, def, " leaves out ",
            IsInput(row.kind) ? "input " : "output ", row.place, " '", row.name.str(),
            "', which is not optional",
            IsInput(row.kind) ? "; an Invoke leaves out a tensor that has no dtype yet" : "");
  }
  for (size_t v = 0; v < kernel.versions.size(); ++v) {
    State& state = states_[v];
    state.slots.reset(new TypedSlot[kernel.rows.size()]);
    for (size_t i = 0; i < kernel.rows.size(); ++i) {
      const TypedParameter& row = kernel.rows[i];
      if (!IsAttribute(row.kind)) continue;
      const std::string name = row.name.str();
      const Attribute& attribute = FindAttribute(schema, def, name);
      try {
        kernel.versions[v].readers[i](attribute, state.slots[i]);
      } catch (const Error& error) {
        if (!row.by_element || error.code() != ErrorCode::kOutOfRange)
          Throw(error.code(), "argument '", name, "': ", error.message());
        // Only a run with this element type reports the error.
        state.refused = StrCat("argument '", name, "' is ", error.message());
      }
    }
  }
}

OPKIT_INLINE void TypedCall::Infer(const OperatorDef& def, InputPointers inputs,
                                   InferenceCache& inference, FunctionRef<void()> wait) const {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i] && !inputs[i]->initialized())
      throw Error(ErrorCode::kUninitialized,
                  StrCat("input ", i, " of ", def, " is read before anything was written to it"),
                  inputs[i]);
  auto infer = [&](InferenceContext& context) {
    schema_.Infer(context);
    for (size_t o = 0; o < context.outputs().size(); ++o)
      if (const SymbolicShape& shape = context.outputs()[o].shape; !shape.is_known())
        Throw(ErrorCode::kInvalidArgument, "the shape of output ", o, " '",
              schema_.outputs()[o].name, "' of ", def,
              " does not follow from its inputs: its shape rule says ", shape);
  };
  inference.Infer(def, inputs, infer, wait);
  inference.Keep();
}

OPKIT_INLINE bool TypedCall::Run(void* context, size_t version, InputPointers inputs,
                                 const Tensor* const* outputs, uint64_t shapes) {
  const TypedVersion& to_call = kernel_.versions[version];
  State& state = states_[version];
  const bool reshaped = state.shapes != shapes;
  state.shapes = 0;
  TypedSlot* slot = state.slots.get();
  for (const TypedParameter& row : kernel_.rows) {
    if (!IsAttribute(row.kind)) {
      const bool is_input = IsInput(row.kind);
      const Tensor* tensor = is_input ? inputs[Index(row.place)] : outputs[row.place];
      if (tensor) {
        if (reshaped) slot->extents.SetShape(tensor->shape());
        slot->data =
            is_input
                ? const_cast<void*>(tensor->raw_data(row.by_element ? to_call.element : row.dtype))
                : tensor->raw_mutable_data();
      }
      slot->present = tensor;
    }
    ++slot;
  }
  state.shapes = shapes;
  return to_call.call(context, state.slots.get());
}

OPKIT_INLINE void TypedCall::ThrowNotStandard(const OperatorDef& def, size_t i,
                                              const Tensor& input) const {
  throw Error(ErrorCode::kUnsupported,
              StrCat("input ", i, " '", schema_.inputs()[i].name, "' of ", def,
                     " needs the standard layout; convert first"),
              &input);
}
OPKIT_INLINE void TypedCall::ThrowNoVersion(const OperatorDef& def, InputPointers inputs) const {
  const size_t i = Index(kernel_.element_input);
  std::vector<DType> versions;
  for (const TypedVersion& version : kernel_.versions) versions.push_back(version.element);
  throw Error(ErrorCode::kTypeMismatch,
              StrCat("input ", i, " '", schema_.inputs()[i].name, "' of ", def.type(), " is ",
                     inputs[i]->dtype(), ", but its kernel for ", def.device(), " is compiled for ",
                     versions, "; add it to .Kernel<>"),
              inputs[i]);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_TYPED_IMPL_TYPED_CALL_IPP_
