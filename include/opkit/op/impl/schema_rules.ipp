// The definitions of the rules that a schema verifies nodes against, and their sentences.
#ifndef OPKIT_OP_IMPL_SCHEMA_RULES_IPP_
#define OPKIT_OP_IMPL_SCHEMA_RULES_IPP_

#include "opkit/base/suggest.hpp"
#include "opkit/op/schema_rules.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

OPKIT_INLINE bool CountRule::Allows(int count) const {
  if (count < min_ || count > max_ || (predicate_ && !predicate_(count))) return false;
  for (int allowed : list_)
    if (allowed == count) return true;
  return list_.empty();
}
OPKIT_INLINE std::string CountRule::Describe() const {
  if (!list_.empty()) return StrCat("one of ", list_);
  if (predicate_) return "a number that its schema's function allows";
  if (min_ == max_) return StrCat(min_);
  if (max_ == kAny) return min_ == 0 ? "any number" : StrCat("at least ", min_);
  return StrCat(min_, " to ", max_);
}

OPKIT_INLINE int ArityRules::OutputsOf(int num_inputs) const {
  return outputs_of_inputs ? outputs_of_inputs(num_inputs) : outputs.fixed();
}
OPKIT_INLINE std::pair<int, int> ArityRules::Of(const Arguments& args) const {
  auto [ins, outs] = of_arguments ? of_arguments(args) : std::pair(-1, -1);
  if (ins < 0) ins = inputs.fixed();
  if (outs < 0) outs = outputs.fixed();
  if (outs < 0 && ins >= 0) outs = OutputsOf(ins);
  return {ins, outs};
}
OPKIT_INLINE std::string ArityRules::Verify(const std::string& op, const OperatorDef& def) const {
  const int ins = static_cast<int>(def.inputs().size());
  const int outs = static_cast<int>(def.outputs().size());
  auto wrong = [&](const char* what, int found, const std::string& expected) {
    return StrCat(op, " has ", found, " ", what, ", expected ", expected);
  };
  if (!inputs.Allows(ins)) return wrong("inputs", ins, inputs.Describe());
  if (!outputs.Allows(outs)) return wrong("outputs", outs, outputs.Describe());
  if (pair_allowed && !pair_allowed(ins, outs))
    return StrCat(op, " does not take ", ins, " inputs together with ", outs, " outputs");
  if (outputs_of_inputs && outputs_of_inputs(ins) != outs)
    return wrong("outputs", outs, StrCat(outputs_of_inputs(ins), " for ", ins, " inputs"));
  const auto [want_ins, want_outs] = of_arguments ? of_arguments(def.args()) : std::pair(-1, -1);
  if (want_ins >= 0 && ins != want_ins)
    return wrong("inputs", ins, StrCat(want_ins, " with these attributes"));
  if (want_outs >= 0 && outs != want_outs)
    return wrong("outputs", outs, StrCat(want_outs, " with these attributes"));
  return {};
}

OPKIT_INLINE InplaceRules::Predicate InplaceRules::AnyOf(
    std::initializer_list<std::pair<int, int>> pairs) {
  return [list = std::vector<std::pair<int, int>>(pairs)](int input, int output) {
    for (const auto& [in, out] : list)
      if (in == input && out == output) return true;
    return false;
  };
}
OPKIT_INLINE std::string InplaceRules::Verify(const std::string& op, const OperatorDef& def) const {
  for (int in = 0; const std::string& input : def.inputs()) {
    for (int out = 0; const std::string& output : def.outputs()) {
      const bool same = !input.empty() && input == output;
      if (same && !May(in, out))
        return StrCat(op, " may not run in place: input ", in, " and output ", out, " are both '",
                      output, "'");
      if (!same && Must(in, out))
        return StrCat(op, " must run in place: input ", in, " is '", input, "' and output ", out,
                      " is '", output, "'");
      ++out;
    }
    ++in;
  }
  return {};
}

OPKIT_INLINE const AttributeSchema* AttributeRules::Find(std::string_view name) const {
  for (const AttributeSchema& attribute : declared)
    if (attribute.name == name) return &attribute;
  return nullptr;
}
OPKIT_INLINE std::string AttributeRules::Suggest(std::string_view name) const {
  std::vector<std::string> known;
  for (const AttributeSchema& attribute : declared) known.push_back(attribute.name);
  return SuggestName(name, known);
}
OPKIT_INLINE std::string AttributeRules::Verify(const std::string& op,
                                                const Arguments& args) const {
  for (const AttributeSchema& attribute : declared) {
    const Attribute* given = args.Find(attribute.name);
    if (!given && attribute.required)
      return StrCat(op, " needs the argument '", attribute.name, "'",
                    attribute.doc.empty() ? "" : " (" + attribute.doc + ")");
    const bool empty_list = given && given->is_list() && given->size() == 0;
    if (!given || !attribute.type || given->type() == *attribute.type || empty_list) continue;
    std::string how_to_write;
    if (given->type() == AttributeType::kInt && attribute.type == AttributeType::kFloat)
      how_to_write = StrCat("; write ", *given, ".0");
    if (given->type() == AttributeType::kInts && attribute.type == AttributeType::kFloats)
      how_to_write = "; write its numbers as 1.0 and not as 1";
    return StrCat("argument '", attribute.name, "' of ", op, " is ", given->type(), " (", *given,
                  "), expected ", *attribute.type, how_to_write);
  }
  for (const NamedAttribute& arg : args)
    if (!Takes(arg.name)) return StrCat(op, " has no argument '", arg.name, "'", Suggest(arg.name));
  return {};
}

}  // namespace detail

}  // namespace opkit

#endif  // OPKIT_OP_IMPL_SCHEMA_RULES_IPP_
