// The definitions of core.hpp.
#ifndef OPKIT_EXPORT_IMPL_CORE_IPP_
#define OPKIT_EXPORT_IMPL_CORE_IPP_

#include "opkit/export/core.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE void RefuseState(const ExportedOperator& op, const char* mend) {
  Throw(ErrorCode::kFailedPrecondition, "operator ", op.name(),
        " keeps state between its runs, so a plain call of it is refused; ", mend);
}

OPKIT_INLINE void RefuseMutation(const ExportedOperator& op, int num_inputs, const Arguments& args,
                                 const char* host) {
  OperatorDef def(op.name(), {}, {}, args);
  for (int i = 0; i < num_inputs; ++i) def.Input(StrCat("input ", i));
  if (const std::vector<int> mutated = op.schema().MutatedInputs(def); !mutated.empty())
    Throw(ErrorCode::kUnsupported, "operator ", op.name(), " writes to its input ", mutated[0],
          ", but ", host, " does not allow an operator to write to its inputs");
}

OPKIT_INLINE Attribute FitAttribute(const AttributeSchema* declared, Attribute value) {
  if (!declared || !declared->type || value.ReadsAs(*declared->type)) return value;
  const AttributeType wanted = *declared->type, found = value.type();
  const std::vector<int64_t>& numbers = value.values().ints;
  const bool from_ints = found == AttributeType::kInt || found == AttributeType::kInts;
  const bool from_bools = found == AttributeType::kBool || found == AttributeType::kBools;
  const bool to_bools = wanted == AttributeType::kBool || wanted == AttributeType::kBools;
  const bool to_ints = wanted == AttributeType::kInt || wanted == AttributeType::kInts;
  const bool to_list = wanted >= AttributeType::kInts;
  if (value.is_list() != to_list || !((from_ints && to_bools) || (from_bools && to_ints)))
    return value;
  for (const int64_t number : numbers)
    if (to_bools && number != 0 && number != 1) return value;
  auto values = MakeIntrusive<Attribute::Values>();
  values->ints = numbers;
  return Attribute(wanted, std::move(values));
}

}}}  // namespace opkit::detail

#endif  // OPKIT_EXPORT_IMPL_CORE_IPP_
