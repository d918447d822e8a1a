// The definitions of TypedBinding, and the lookup of attributes.
#ifndef OPKIT_OP_TYPED_IMPL_TYPED_KERNEL_IPP_
#define OPKIT_OP_TYPED_IMPL_TYPED_KERNEL_IPP_

#include "opkit/op/typed/typed_kernel.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

OPKIT_INLINE const Attribute& FindAttribute(const OperatorBase& op, const FixedName& name) {
  const std::string text = name.str();
  if (const Attribute* given = op.def().args().Find(text)) return *given;
  const AttributeSchema* declared = OpRegistry::Global().GetSchema(op.type()).FindAttribute(text);
  if (!declared || !declared->default_value)
    Throw(ErrorCode::kNotFound, "operator ", op.type(), " needs the argument '", text, "'");
  return *declared->default_value;
}
OPKIT_INLINE void ThrowForArgument(const Error& error, const FixedName& name) {
  Throw(error.code(), "argument '", name.str(), "': ", error.message());
}

OPKIT_INLINE TypedBinding::TypedBinding(OperatorBase& op, std::span<const TypedParameter> rows)
    : op_(op), schema_(&OpRegistry::Global().GetSchema(op.type())) {
  for (const TypedParameter& row : rows) {
    if (IsInput(row.kind)) inputs_.push_back(nullptr);
    const bool left_out = (row.kind == ParameterKind::kIn && !op.HasInput(row.place)) ||
                          (row.kind == ParameterKind::kOut && !op.HasOutput(row.place));
    if (left_out)
      Throw(ErrorCode::kInvalidArgument, op.def(), " leaves out ",
            IsInput(row.kind) ? "input " : "output ", row.place, " '", row.name.str(),
            "', which is not optional",
            IsInput(row.kind) ? "; an Invoke leaves out a tensor that has no dtype yet" : "");
  }
}
OPKIT_INLINE void TypedBinding::InferOutputs(FunctionRef<void()> wait) {
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i] && !inputs_[i]->initialized())
      throw Error(
          ErrorCode::kUninitialized,
          StrCat("input ", i, " of ", op_.def(), " is read before anything was written to it"),
          inputs_[i]);
  auto infer = [this](InferenceContext& context) {
    schema_->Infer(context);
    for (size_t o = 0; o < context.outputs().size(); ++o)
      if (const SymbolicShape& shape = context.outputs()[o].shape; !shape.is_known())
        Throw(ErrorCode::kInvalidArgument, "the shape of output ", o, " '",
              schema_->outputs()[o].name, "' of ", op_.def(),
              " does not follow from its inputs: its shape rule says ", shape);
  };
  op_.inference().Infer(op_.def(), inputs_, infer, wait);
  op_.inference().Keep();
}
OPKIT_INLINE void TypedBinding::NotStandard(size_t i) const {
  throw Error(ErrorCode::kUnsupported,
              StrCat("input ", i, " '", schema_->inputs()[i].name, "' of ", op_.def(),
                     " needs the standard layout; convert first"),
              inputs_[i]);
}
OPKIT_INLINE void TypedBinding::NoVersionFor(int i, std::initializer_list<DType> versions) const {
  throw Error(ErrorCode::kTypeMismatch,
              StrCat("input ", i, " '", schema_->inputs()[Index(i)].name, "' of ", op_.type(),
                     " is ", input_dtype(i), ", but its kernel for ", op_.device(),
                     " is compiled for ", std::vector<DType>(versions), "; add it to .Kernel<>"),
              inputs_[Index(i)]);
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_TYPED_IMPL_TYPED_KERNEL_IPP_
