#include "cpp_wrappers.hpp"

#include <algorithm>
#include <cctype>
#include <climits>
#include <cstdio>
#include <set>
#include <tuple>

#include "opkit/version.hpp"

namespace cli {
namespace {

using namespace opkit;

// Optional inputs beyond this number are passed as one list.
constexpr int kMostOptional = 8;

bool IsKeyword(const std::string& name) {
  static const std::set<std::string> keywords = {
      "alignas",      "alignof",       "and",         "and_eq",
      "asm",          "auto",          "bitand",      "bitor",
      "bool",         "break",         "case",        "catch",
      "char",         "char16_t",      "char32_t",    "char8_t",
      "class",        "co_await",      "co_return",   "co_yield",
      "compl",        "concept",       "const",       "const_cast",
      "consteval",    "constexpr",     "constinit",   "continue",
      "decltype",     "default",       "delete",      "do",
      "double",       "dynamic_cast",  "else",        "enum",
      "explicit",     "export",        "extern",      "false",
      "float",        "for",           "friend",      "goto",
      "if",           "inline",        "int",         "long",
      "mutable",      "namespace",     "new",         "noexcept",
      "not",          "not_eq",        "nullptr",     "operator",
      "or",           "or_eq",         "private",     "protected",
      "public",       "register",      "requires",    "return",
      "short",        "signed",        "sizeof",      "static",
      "struct",       "switch",        "template",    "this",
      "thread_local", "throw",         "true",        "try",
      "typedef",      "typeid",        "typename",    "union",
      "unsigned",     "using",         "virtual",     "void",
      "volatile",     "wchar_t",       "while",       "xor",
      "xor_eq",       "static_assert", "static_cast", "reinterpret_cast"};
  return keywords.contains(name);
}
// Does not depend on the locale, as std::isalnum does.
bool IsLetterOrDigit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}
// Returns a C++ name for a name of a schema: "group-size" becomes group_size, "default" default_.
std::string NameInCpp(const std::string& name, const std::string& without) {
  std::string out;
  for (const char c : name) out += IsLetterOrDigit(c) ? c : '_';
  if (out.empty()) out = without;
  if (out[0] >= '0' && out[0] <= '9') out = "_" + out;
  return IsKeyword(out) ? out + "_" : out;
}

std::string Literal(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    char code[8];
    std::snprintf(code, sizeof code, "\\%03o",
                  static_cast<unsigned>(static_cast<unsigned char>(c)));
    const bool plain = static_cast<unsigned char>(c) >= 32 && c != '"' && c != '\\' && c != '?';
    out += plain ? std::string(1, c) : std::string(code);
  }
  return out + "\"";
}

// Returns comment lines of at most 100 columns.
std::string Comment(const std::string& text, const std::string& indent) {
  std::string out, line = indent + "//";
  constexpr const char* kSpaces = " \n\t\r\v\f";
  size_t begin = 0;
  while ((begin = text.find_first_not_of(kSpaces, begin)) != text.npos) {
    const size_t end = std::min(text.find_first_of(kSpaces, begin), text.size());
    if (line.size() + 1 + (end - begin) > 100 && line.size() > indent.size() + 2) {
      out += line + "\n";
      line = indent + "//";
    }
    line += " " + text.substr(begin, end - begin);
    if (line.ends_with('\\')) line += '.';  // else the next line would belong to the comment
    begin = end;
  }
  return line.size() > indent.size() + 2 ? out + line + "\n" : out;
}

const char* TypeInCpp(AttributeType type) {
  switch (type) {
    case AttributeType::kInt:
      return "std::int64_t";
    case AttributeType::kFloat:
      return "double";
    case AttributeType::kBool:
      return "bool";
    case AttributeType::kString:
      return "std::string";
    case AttributeType::kTensor:
      return "::opkit::Tensor";
    case AttributeType::kInts:
      return "std::vector<std::int64_t>";
    case AttributeType::kFloats:
      return "std::vector<double>";
    case AttributeType::kBools:
      return "std::vector<bool>";
    case AttributeType::kStrings:
      return "std::vector<std::string>";
    case AttributeType::kTensors:
      return "std::vector<::opkit::Tensor>";
  }
  return "::opkit::Attribute";
}
// Returns a default as an initializer; empty for a value that is not written so.
std::string DefaultInCpp(const Attribute& value) {
  const Attribute::Values& all = value.values();
  std::vector<std::string> items;
  const bool bools = value.type() == AttributeType::kBool || value.type() == AttributeType::kBools;
  for (const int64_t one : all.ints) {
    if (one == INT64_MIN) return {};
    items.push_back(bools ? (one ? "true" : "false") : std::to_string(one));
  }
  for (const double one : all.floats) {
    char text[40];
    std::snprintf(text, sizeof text, "%.9g", one);
    if (static_cast<float>(one) != one) std::snprintf(text, sizeof text, "%.17g", one);
    if (!std::isdigit(static_cast<unsigned char>(text[text[0] == '-']))) return {};  // nan, inf
    items.push_back(text);
  }
  for (const std::string& one : all.strings) items.push_back(Literal(one));
  if (!all.tensors.empty()) return {};
  if (!value.is_list()) return items.empty() ? std::string() : items[0];
  std::string out = "{";
  for (const std::string& item : items) out += (out.size() == 1 ? "" : ", ") + item;
  return out + "}";
}

// Writes the function of one operator, and the structs of its attributes and outputs.
class Wrapper {
 public:
  Wrapper(const OpSchema& schema, const std::string& name)
      : schema_(schema),
        name_(name),
        least_in_(schema.min_inputs()),
        most_in_(schema.max_inputs()),
        least_out_(schema.min_outputs()),
        most_out_(schema.max_outputs()) {
    if (schema.has_arity_function()) {
      int inputs = -1, outputs = -1;
      try {
        std::tie(inputs, outputs) = schema.Arity(Arguments());
      } catch (const Error&) {  // the function requires an attribute
      }
      // Attributes may make the numbers others, if there are any.
      const bool fixed = schema.attributes().empty() && !schema.unknown_args_allowed();
      if (fixed || inputs >= 0) least_in_ = most_in_ = inputs;
      if (fixed || outputs >= 0) least_out_ = most_out_ = outputs;
      if (inputs < 0) least_in_ = 0, most_in_ = INT_MAX;
      if (outputs < 0) least_out_ = 0, most_out_ = INT_MAX;
    }
    const auto described = static_cast<int>(schema.inputs().size());
    is_list_ = most_in_ > std::max(described, least_in_) + kMostOptional;
    is_out_list_ = most_out_ > std::max<int>(static_cast<int>(schema.outputs().size()), 8);
    // The last described input is the one that repeats, unless all of the described are needed.
    single_ = is_list_ ? std::max(0, std::min(least_in_, described - 1)) : least_in_;
    has_attributes_ = !schema.attributes().empty() || schema.unknown_args_allowed();
  }

  std::string Text() {
    std::string out = "\n";
    if (has_attributes_) out += AttributesStruct();
    if (!is_out_list_ && most_out_ > 1) out += OutputsStruct();
    const int last = is_list_ ? single_ : most_in_;
    std::string doc = schema_.doc();
    for (int i = 0; i < last + is_list_; ++i) {
      const std::string about = DocOf(schema_.inputs(), i);
      const bool says_so = i < least_in_ || about.starts_with("optional");
      doc += " " + InputName(i) + ": " + (about.empty() ? "an input" : about) +
             (says_so ? "." : " (optional).");
    }
    out += Comment(doc, "");
    for (int inputs = single_; inputs <= last; ++inputs) out += Function(inputs);
    return out;
  }

 private:
  static std::string DocOf(const std::vector<opkit::detail::ValueSchema>& values, int i) {
    if (static_cast<size_t>(i) >= values.size()) return {};
    std::string doc = values[static_cast<size_t>(i)].doc;
    while (doc.ends_with('.')) doc.pop_back();
    return doc;
  }
  // Returns names that differ from each other and from those of the function's own variables.
  std::string ValueName(const std::vector<opkit::detail::ValueSchema>& values, const char* what,
                        int i) const {
    const std::string plain = what + std::to_string(i);
    if (static_cast<size_t>(i) >= values.size()) return plain;
    const std::string name = NameInCpp(values[static_cast<size_t>(i)].name, plain);
    for (int k = 0; k < i; ++k)
      if (ValueName(values, what, k) == name) return plain;
    for (const char* own : {"attributes", "options", "outputs", "tensors"})
      if (name == own) return name + "_";
    return name == name_ ? name + "_" : name;
  }
  std::string InputName(int i) const { return ValueName(schema_.inputs(), "input", i); }

  std::string AttributesStruct() const {
    std::string out =
        "// The attributes of " + schema_.name() + ".\nstruct " + name_ + "Attributes {\n";
    std::string add;
    std::set<std::string> taken = {"ToArguments", "arguments", name_ + "Attributes"};
    if (schema_.unknown_args_allowed()) taken.insert("more");
    for (const opkit::detail::AttributeSchema& attribute : schema_.attributes()) {
      std::string doc = attribute.doc;
      if (!attribute.values.empty()) {
        doc += doc.empty() ? "One of" : "; one of";
        for (const std::string& value : attribute.values) doc += " " + value;
      }
      if (attribute.required) doc += doc.empty() ? "Required" : " (required)";
      out += Comment(doc, "  ");
      std::string member = NameInCpp(attribute.name, "attribute");
      while (!taken.insert(member).second) member += '_';
      const std::string type = attribute.type ? TypeInCpp(*attribute.type) : "::opkit::Attribute";
      const std::string value =
          attribute.default_value && attribute.type ? DefaultInCpp(*attribute.default_value) : "";
      const std::string key = "    arguments.Set(" + Literal(attribute.name) + ", ";
      if (!value.empty()) {
        out += "  " + type + " " + member + " = " + value + ";\n";
        add += key + member + ");\n";
      } else {
        out += "  std::optional<" + type + "> " + member + " = {};\n";
        add += "    if (" + member + ") arguments.Set(" + Literal(attribute.name) + ", *" + member +
               ");\n";
      }
    }
    if (schema_.unknown_args_allowed())
      out +=
          "  // Attributes that the schema does not describe.\n  ::opkit::Arguments more = {};\n";
    const char* const first = schema_.unknown_args_allowed() ? " = more" : "";
    out += std::string(
               "\n  ::opkit::Arguments ToArguments() const {\n    ::opkit::Arguments arguments") +
           first + ";\n" + add + "    return arguments;\n  }\n};\n";
    return out;
  }
  std::string OutputsStruct() const {
    std::string out = "// The outputs of " + schema_.name() + ".\nstruct " + name_ + "Outputs {\n";
    for (int i = 0; i < most_out_; ++i)
      out += Comment(DocOf(schema_.outputs(), i), "  ") + "  ::opkit::Tensor " +
             ValueName(schema_.outputs(), "output", i) + " = {};\n";
    return out + "};\n";
  }

  std::string Function(int inputs) const {
    std::vector<std::string> parameters;
    std::string list, all, body;
    for (int i = 0; i < inputs; ++i) {
      parameters.push_back("const ::opkit::Tensor& " + InputName(i));
      list += (list.empty() ? "" : ", ") + InputName(i);
    }
    all = "{" + list + "}";
    if (is_list_) {
      const std::string rest = InputName(inputs);
      parameters.push_back("const std::vector<::opkit::Tensor>& " + rest);
      body += "  std::vector<::opkit::Tensor> tensors = {" + list +
              "};\n  tensors.insert(tensors.end(), " + rest + ".begin(), " + rest + ".end());\n";
      all = "tensors";
    }
    if (has_attributes_) parameters.push_back("const " + name_ + "Attributes& attributes = {}");
    parameters.push_back("::opkit::InvokeOptions options = {}");
    const bool is_one = most_out_ == 1, is_struct = !is_out_list_ && most_out_ > 1;
    const std::string type = is_one         ? "::opkit::Tensor"
                             : is_struct    ? name_ + "Outputs"
                             : is_out_list_ ? "std::vector<::opkit::Tensor>"
                                            : "void";
    body += std::string("  ") + (type == "void" ? "" : "auto outputs = ") + "::opkit::Invoke(" +
            Literal(schema_.name()) + ", " + all + ", " +
            (has_attributes_ ? "attributes.ToArguments()" : "{}") + ", options);\n";
    if (!is_out_list_ && least_out_ < most_out_)
      body = "  if (options.num_outputs < 0) options.num_outputs = " +
             std::to_string(std::max(least_out_, 1)) + ";\n" + body;
    if (is_one) body += "  return std::move(outputs[0]);\n";
    if (is_out_list_) body += "  return outputs;\n";
    if (is_struct) {
      body += "  outputs.resize(" + std::to_string(most_out_) + ");\n  return {";
      for (int i = 0; i < most_out_; ++i)
        body += (i ? ", std::move(outputs[" : "std::move(outputs[") + std::to_string(i) + "])";
      body += "};\n";
    }
    const std::string head = "inline " + type + " " + name_ + "(";
    std::string out = head;
    for (const std::string& parameter : parameters) {
      const bool is_last = &parameter == &parameters.back();
      const size_t column = out.size() - out.rfind('\n') - 1;
      if (column + parameter.size() + 3 > 100 && out != head) out += "\n   ";
      out += (out == head ? "" : " ") + parameter + (is_last ? ") {\n" : ",");
    }
    return out + body + "}\n";
  }

  const OpSchema& schema_;
  const std::string name_;
  int least_in_, most_in_, least_out_, most_out_;
  int single_ = 0;  // inputs that have a parameter each in every function
  bool is_list_ = false, is_out_list_ = false;  // the last input, or the outputs, are a list
  bool has_attributes_ = false;
};

}  // namespace

std::string CppWrappers(const std::vector<const OpSchema*>& schemas) {
  std::string out =
      "// Functions of operators, which `opkit ops --emit cpp` of opkit " OPKIT_VERSION_STRING
      " has written.\n"
      "// Each calls opkit::Invoke: the Errors are the same. A default-constructed Tensor leaves "
      "an\n"
      "// optional input out. InvokeOptions::num_outputs asks for optional outputs.\n"
      "#pragma once\n\n"
      "#include <cstdint>\n#include <optional>\n#include <string>\n#include <utility>\n"
      "#include <vector>\n\n#include <opkit/opkit.hpp>\n\nnamespace ops {\n";
  std::set<std::string> taken;
  for (const OpSchema* schema : schemas) {
    if (schema->needs_subgraph()) {
      out += "\n// " + schema->name() + " needs a graph, so that it has no function.\n";
      continue;
    }
    std::string name = NameInCpp(schema->name(), "unnamed");
    while (taken.contains(name) || taken.contains(name + "Attributes") ||
           taken.contains(name + "Outputs"))
      name += '_';
    taken.insert({name, name + "Attributes", name + "Outputs"});
    out += Wrapper(*schema, name).Text();
  }
  return out + "\n}  // namespace ops\n";
}

}  // namespace cli
