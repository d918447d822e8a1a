// The definitions of ToMarkdown and DocsOfAllOperators.
#ifndef OPKIT_OP_SCHEMA_IMPL_SCHEMA_DOCS_IPP_
#define OPKIT_OP_SCHEMA_IMPL_SCHEMA_DOCS_IPP_

#include "opkit/base/index.hpp"
#include "opkit/op/schema/schema_docs.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns `text` on one line, with each `|` escaped.
inline std::string Cell(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

inline std::string ValueTable(const char* title, const std::string& count,
                              const std::vector<ValueSchema>& values) {
  std::string out = StrCat("\n**", title, "** (", count, ")\n");
  if (values.empty()) return out;
  out += "\n| # | name | dtypes | |\n|---|---|---|---|\n";
  for (size_t i = 0; i < values.size(); ++i) {
    std::string dtypes;
    for (DType dtype : values[i].dtypes) dtypes += StrCat(dtypes.empty() ? "" : ", ", dtype);
    out += StrCat("| ", i, " | ", Cell(values[i].name), " | ", dtypes.empty() ? "any" : dtypes,
                  " | ", Cell(values[i].doc), " |\n");
  }
  return out;
}

inline std::string NameOf(const std::vector<ValueSchema>& values, const char* what, int i) {
  return Index(i) < values.size() && !values[Index(i)].name.empty()
             ? "`" + values[Index(i)].name + "`"
             : StrCat(what, " ", i);
}

// Returns "one of `valid`, `same`".
inline std::string ValueList(const std::vector<std::string>& values) {
  std::string out = "one of";
  for (const std::string& value : values) out += StrCat(out == "one of" ? " `" : ", `", value, "`");
  return out;
}

// Lists the pairs among the first 8 inputs and outputs: a predicate may allow any number of pairs.
inline std::string InplaceList(const OpSchema& schema) {
  constexpr int kShown = 8;
  std::string out;
  for (int i = 0; i < kShown && i < schema.max_inputs(); ++i)
    for (int o = 0; o < kShown && o < schema.max_outputs(); ++o)
      if (schema.CanInplace(i, o))
        out += StrCat("\n- ", NameOf(schema.inputs(), "input", i), " and ",
                      NameOf(schema.outputs(), "output", o),
                      schema.MustInplace(i, o) ? " (must be the same)" : "");
  return out;
}

// Returns the numbers of inputs and outputs of a node. If a function of the attributes computes
// them, calls it without attributes.
inline std::pair<std::string, std::string> Counts(const OpSchema& schema) {
  std::pair<std::string, std::string> counts{schema.expected_inputs(), schema.expected_outputs()};
  if (!schema.has_arity_function()) return counts;
  try {
    const auto [inputs, outputs] = schema.Arity(Arguments());
    const char* const without = schema.attributes().empty() ? "" : ", without attributes";
    const auto describe = [&](int count, std::string& text) {
      if (count >= 0)
        text = StrCat(count, without);
      else if (schema.needs_subgraph())
        text = "those of its graph";
    };
    describe(inputs, counts.first);
    describe(outputs, counts.second);
  } catch (const Error&) {  // the function requires an attribute
  }
  return counts;
}

}  // namespace detail

OPKIT_INLINE std::string ToMarkdown(const OpSchema& schema) {
  std::string out = StrCat("## ", schema.name(), "\n");
  if (!schema.doc().empty()) out += StrCat("\n", schema.doc(), "\n");
  const auto [inputs, outputs] = detail::Counts(schema);
  out += detail::ValueTable("Inputs", inputs, schema.inputs());
  out += detail::ValueTable("Outputs", outputs, schema.outputs());
  if (!schema.attributes().empty()) {
    out += "\n**Attributes**\n\n| name | type | default | |\n|---|---|---|---|\n";
    for (const detail::AttributeSchema& attribute : schema.attributes())
      out += StrCat("| ", detail::Cell(attribute.name), " | ",
                    !attribute.values.empty() ? detail::Cell(detail::ValueList(attribute.values))
                    : attribute.type          ? ToString(*attribute.type)
                                              : "any",
                    " | ",
                    attribute.required        ? "required"
                    : attribute.default_value ? detail::Cell(ToString(*attribute.default_value))
                                              : std::string(),
                    " | ", detail::Cell(attribute.doc), " |\n");
  }
  const std::string inplace = detail::InplaceList(schema);
  if (!inplace.empty()) out += "\n**In place**\n" + inplace + "\n";
  return out;
}

OPKIT_INLINE std::string DocsOfAllOperators() {
  const OpRegistry& registry = OpRegistry::Global();
  std::string out;
  for (const std::string& op : registry.Operators()) {
    const OpSchema* schema = registry.FindSchema(op);
    if (!schema || schema->is_private()) continue;
    std::string kernels;
    for (const Kernel* kernel : registry.KernelsOf(op))
      kernels += StrCat(kernels.empty() ? "" : ", ", kernel->device, " (", kernel->backend, ")");
    out += StrCat(out.empty() ? "" : "\n", ToMarkdown(*schema),
                  "\n**Kernels**: ", kernels.empty() ? "none in this program" : kernels, "\n");
  }
  return out;
}

}}  // namespace opkit

#endif  // OPKIT_OP_SCHEMA_IMPL_SCHEMA_DOCS_IPP_
