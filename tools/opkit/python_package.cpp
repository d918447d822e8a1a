#include "python_package.hpp"

#include <algorithm>
#include <cctype>
#include <set>
#include <vector>

#include "opkit/base/suggest.hpp"
#include "opkit/interop/parse_json.hpp"
#include "opkit/version.hpp"
#include "program.hpp"
#include "python_side/texts.hpp"

namespace cli {
namespace {

using Facts = opkit::detail::Json;

enum class Host { kTvmFfi, kJax, kTorch };

// Returns a name for Python: "group-size" becomes group_size, "lambda" lambda_.
std::string NameInPython(const std::string& name) {
  static const std::set<std::string> keywords = {
      "False", "None",     "True",  "and",    "as",   "assert", "async",  "await",    "break",
      "class", "continue", "def",   "del",    "elif", "else",   "except", "finally",  "for",
      "from",  "global",   "if",    "import", "in",   "is",     "lambda", "nonlocal", "not",
      "or",    "pass",     "raise", "return", "try",  "while",  "with",   "yield"};
  std::string out;
  for (const char c : name)
    out += std::isalnum(static_cast<unsigned char>(c)) || c == '_' ? c : '_';
  if (out.empty() || std::isdigit(static_cast<unsigned char>(out[0]))) out = "_" + out;
  return keywords.contains(out) ? out + "_" : out;
}
// Returns a text as a literal of Python.
std::string PythonText(const std::string& text) {
  // JSON's escapes are Python's too.
  return Facts(text).dump(-1, ' ', true, Facts::error_handler_t::replace);
}
std::string Joined(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : ", ") + part;
  return out;
}
std::string Tuple(const std::vector<std::string>& parts) {
  return "(" + Joined(parts) + (parts.size() == 1 ? ",)" : ")");
}
// Returns a text as it stands in a docstring.
std::string InDocstring(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}
// Returns the lines of a text for a docstring, of at most 96 columns.
std::string Wrapped(const std::string& text, const std::string& indent, const std::string& more) {
  std::string out, line = indent;
  size_t begin = 0;
  bool empty = true;
  while ((begin = text.find_first_not_of(" \n\t", begin)) != text.npos) {
    const size_t end = std::min(text.find_first_of(" \n\t", begin), text.size());
    if (!empty && line.size() + 1 + (end - begin) > 96) {
      out += line + "\n";
      line = more;
      empty = true;
    }
    line += (empty ? "" : " ");
    line += InDocstring(text.substr(begin, end - begin));
    empty = false;
    begin = end;
  }
  return out + line + "\n";
}

// One operator, with the names of its parameters in Python.
class PythonOperator {
 public:
  PythonOperator(const Facts& json, bool elementwise)
      : json_(json), name_(json.at("name")), elementwise_(elementwise) {
    const Facts& inputs = json.at("inputs");
    const Facts& count = json.at("num_inputs");
    const auto least = count.at(0).get<size_t>();
    const size_t most = count.at(1).is_null() ? SIZE_MAX : count.at(1).get<size_t>();
    many_ = most > inputs.size() && most != least;
    std::set<std::string> names = {"out"};
    const auto add = [&](std::string name, const std::string& other) {
      if (!names.insert(name).second) names.insert(name = other);
      return name;
    };
    for (const Facts& attribute : json.at("attributes"))
      attributes_.push_back(add(NameInPython(attribute.at("name")), "attribute"));
    for (size_t i = 0; i < most && !many_; ++i) {
      const std::string plain = "input" + std::to_string(i);
      const std::string name = i < inputs.size() ? inputs[i].at("name") : Facts(plain);
      inputs_.push_back(add(name.empty() ? plain : NameInPython(name), plain));
      optional_.push_back(i >= least);
    }
  }

  const std::string& name() const { return name_; }
  bool Has(Host host) const {
    constexpr const char* kHosts[] = {"tvm_ffi", "xla", "torch"};
    const std::string wanted = kHosts[static_cast<int>(host)];
    if (host == Host::kTorch && is_stateful()) return false;  // torch has no object for the state
    for (const Facts& found : json_.at("hosts"))
      if (found == wanted) return true;
    return false;
  }
  bool is_stateful() const { return json_.at("stateful"); }
  // An operator with state needs an object that owns the state.
  bool IsMade(Host host) const { return is_stateful() && host == Host::kTvmFfi; }
  std::string FunctionName(Host host) const {
    return IsMade(host) ? name_ + "_create" : NameInPython(name_);
  }

  std::string Function(Host host) const {
    std::string out = "def " + FunctionName(host) + "(" + Parameters(host, false) + "):\n";
    out += Docstring(host);
    const std::string inputs = many_ ? "inputs" : Tuple(inputs_);
    if (host == Host::kTvmFfi) {
      const std::string many = many_ ? ", many=True" : "";
      if (IsMade(host))
        return out + "    return _create(\"" + name_ + "\", " + Tuple(attributes_) + many + ")\n";
      return out + "    return _call(\"" + name_ + "\", " + inputs + ", " + Tuple(attributes_) +
             ", out" + many + ")\n";
    }
    std::vector<std::string> values;
    for (size_t i = 0; i < attributes_.size(); ++i)
      if (IsTaken(i, host))
        values.push_back(PythonText(json_.at("attributes")[i].at("name")) + ": " + attributes_[i]);
    return out + "    return _" + name_ + "(" + inputs + ", {" + Joined(values) + "})\n";
  }
  // Returns the line that makes what Function calls; empty for tvm-ffi.
  std::string Maker(Host host) const {
    if (host == Host::kTvmFfi) return {};
    std::string out = "_" + name_ + " = _operator(\"" + name_ + "\"";
    if (host == Host::kJax) {
      std::vector<std::string> kinds;
      for (const Facts& attribute : json_.at("attributes"))
        kinds.push_back(PythonText(attribute.at("name")) + ": " +
                        (attribute.contains("type") ? PythonText(attribute.at("type")) : "None"));
      out += ", {" + Joined(kinds) + "}";
      if (is_stateful()) out += ", stateful=True";
      if (elementwise_) out += ", elementwise=True";
    }
    if (!json_.at("gradient").is_null()) out += ", gradient=" + PythonText(json_.at("gradient"));
    return out + ")\n";
  }
  std::string Stub(Host host) const {
    return "def " + FunctionName(host) + "(" + Parameters(host, true) + ") -> " + Returned(host) +
           ": ...\n";
  }

 private:
  // An attribute of any type is none of torch's parameters.
  bool IsTaken(size_t i, Host host) const {
    return host != Host::kTorch || json_.at("attributes")[i].contains("type");
  }
  std::string Default(const Facts& attribute) const {
    if (!attribute.contains("default")) return "None";
    const Facts& value = attribute.at("default");
    const auto text = [&](const Facts& one) {
      if (one.is_boolean()) return std::string(one.get<bool>() ? "True" : "False");
      if (one.is_string()) return PythonText(one);
      std::string number = one.dump();
      const std::string type = attribute.value("type", "");
      if (type.find("float") != type.npos && number.find_first_of(".e") == number.npos)
        number += ".0";
      return number;
    };
    if (!value.is_array()) return text(value);
    std::vector<std::string> elements;
    for (const Facts& one : value) elements.push_back(text(one));
    return Tuple(elements);
  }
  static const char* Array(Host host) {
    return host == Host::kTvmFfi ? "_Array" : host == Host::kJax ? "_ArrayLike" : "_Tensor";
  }
  static std::string TypeInStub(const Facts& attribute) {
    const std::string type = attribute.value("type", "");
    const bool is_list = type.ends_with('s');
    const std::string one = is_list ? type.substr(0, type.size() - 1) : type;
    const std::string name = one == "int" || one == "float" || one == "bool" ? one
                             : one == "string"                               ? "str"
                                                                             : "_Any";
    return is_list ? "_Sequence[" + name + "]" : name;
  }
  std::string Parameters(Host host, bool is_stub) const {
    std::vector<std::string> out;
    const auto type = [&](const std::string& text, bool optional) {
      return !is_stub ? std::string() : ": " + (optional ? "_Optional[" + text + "]" : text);
    };
    const std::string none = is_stub ? " = ..." : "=None";
    if (!IsMade(host)) {
      if (many_) out.push_back("*inputs" + type(Array(host), false));
      for (size_t i = 0; i < inputs_.size(); ++i)
        out.push_back(inputs_[i] + type(Array(host), optional_[i]) + (optional_[i] ? none : ""));
    }
    const bool has_out = host == Host::kTvmFfi && !IsMade(host);
    if (!many_ || IsMade(host))
      if (!attributes_.empty() || has_out) out.push_back("*");
    for (size_t i = 0; i < attributes_.size(); ++i) {
      if (!IsTaken(i, host)) continue;
      const Facts& attribute = json_.at("attributes")[i];
      const bool required = attribute.at("required");
      out.push_back(attributes_[i] + type(TypeInStub(attribute), !required) +
                    (required  ? ""
                     : is_stub ? " = ..."
                               : "=" + Default(attribute)));
    }
    if (!is_stub && out.size() > 0 && out.back() == "*") out.pop_back();
    if (has_out)
      out.push_back("out" + type(num_outputs() == 1 ? "_Array" : "_Sequence[_Array]", true) + none);
    return Joined(out);
  }
  // Returns -1 for a number that the call decides.
  int num_outputs() const {
    const Facts& count = json_.at("num_outputs");
    return count[0] == count[1] ? count[0].get<int>() : -1;
  }
  std::string Returned(Host host) const {
    if (IsMade(host)) return "_Callable[..., _Any]";
    const std::string one = host == Host::kJax ? "_JaxArray" : Array(host);
    if (num_outputs() == 1) return one;
    if (host == Host::kTorch && num_outputs() < 0) return "list[" + one + "]";
    return "tuple[" + one + ", ...]";
  }

  std::string Docstring(Host host) const {
    const std::string doc = json_.at("doc");
    std::string out =
        Wrapped(doc.empty() ? "The operator " + name_ + "." : doc, "    \"\"\"", "    ");
    std::string about;
    const auto describe = [&](const std::string& name, const std::string& what,
                              const std::string& text) {
      const char* const between = what.empty() || text.empty() ? "" : ". ";
      about += Wrapped(name + ": " + what + between + text, "        ", "            ");
    };
    const auto dtypes = [](const Facts& value) {
      std::vector<std::string> names = value.at("dtypes");
      return Joined(names);
    };
    const Facts& inputs = json_.at("inputs");
    if (!IsMade(host)) {
      if (many_)
        describe("inputs", "any number of arrays", inputs.empty() ? "" : inputs.back().at("doc"));
      for (size_t i = 0; i < inputs_.size(); ++i) {
        std::string what = i < inputs.size() ? dtypes(inputs[i]) : "";
        if (optional_[i]) what += what.empty() ? "may be None" : "; may be None";
        describe(inputs_[i], what.empty() ? "an array" : what,
                 i < inputs.size() ? inputs[i].at("doc") : Facts(""));
      }
    }
    for (size_t i = 0; i < attributes_.size(); ++i) {
      if (!IsTaken(i, host)) continue;
      const Facts& attribute = json_.at("attributes")[i];
      std::string what = attribute.value("type", "any type");
      if (attribute.contains("default")) what += ", default " + Default(attribute);
      std::vector<std::string> values;
      for (const Facts& value : attribute.at("values")) values.push_back(PythonText(value));
      if (!values.empty()) what += ", one of " + Joined(values);
      describe(attributes_[i], what, attribute.at("doc"));
    }
    if (host == Host::kTvmFfi && !IsMade(host))
      describe("out",
               num_outputs() == 1 ? "an array that gets the result" : "arrays that get the results",
               "");
    if (!about.empty()) out += "\n    Args:\n" + about;
    about.clear();
    if (IsMade(host))
      about = Wrapped("a function of the inputs, and of out, that keeps the state of its calls",
                      "        ", "            ");
    for (const Facts& output : json_.at("outputs"))
      if (!IsMade(host)) describe(output.at("name"), dtypes(output), output.at("doc"));
    if (!about.empty()) out += "\n    Returns:\n" + about;
    return out + "    \"\"\"\n";
  }

  const Facts& json_;
  const std::string name_;
  const bool elementwise_;
  std::vector<std::string> inputs_, attributes_;
  std::vector<bool> optional_;
  bool many_ = false;  // any number of inputs
};

constexpr const char* kStubImports[] = {
    "from typing import Any as _Any, Callable as _Callable, Optional as _Optional\n"
    "from typing import Sequence as _Sequence, TypeVar as _TypeVar\n\n_Array = "
    "_TypeVar(\"_Array\")\n",
    "from typing import Any as _Any, Optional as _Optional, Sequence as _Sequence\n\n"
    "from jax import Array as _JaxArray\nfrom jax.typing import ArrayLike as _ArrayLike\n",
    "from typing import Any as _Any, Optional as _Optional, Sequence as _Sequence\n\n"
    "from torch import Tensor as _Tensor\n"};
constexpr const char* kImports[] = {"from ._library import call as _call, create as _create\n",
                                    "from ._jax import operator as _operator\n",
                                    "from ._torch import operator as _operator\n"};

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

}  // namespace

bool IsNameInPython(const std::string& name) { return NameInPython(name) == name; }

std::map<std::string, std::string> PythonPackage(const PythonPackageParts& parts) {
  const Facts json = opkit::detail::ParseJson(parts.description);
  const std::string& file = parts.file;
  const std::string& package = parts.package;
  const std::set<std::string> elementwise(parts.elementwise.begin(), parts.elementwise.end());
  std::vector<PythonOperator> operators;
  std::vector<std::string> known;
  for (const Facts& op : json.at("operators")) {
    known.push_back(op.at("name"));
    operators.emplace_back(op, elementwise.contains(known.back()));
  }
  for (const std::string& name : elementwise)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw Failure(ExitCode::kUsage, "library '" + file + "' exports no operator '" + name + "'" +
                                          opkit::SuggestName(name, known));
  const std::string mark = std::string(kPythonMark) + " of opkit " OPKIT_VERSION_STRING + ".\n";

  std::map<std::string, std::string> files;
  const std::string about[] = {
      "Operators of " + InDocstring(file) +
          " on NumPy arrays and DLPack tensors, by tvm-ffi.\n\n    import " + package + "\n\n" +
          package + ".jax and " + package + ".torch have the operators for JAX and PyTorch.\n",
      "Operators of " + InDocstring(file) + " for JAX.",
      "Operators of " + InDocstring(file) + " for PyTorch."};
  for (const Host host : {Host::kTvmFfi, Host::kJax, Host::kTorch}) {
    const auto i = static_cast<size_t>(host);
    std::vector<std::string> names;
    std::string functions, makers, stubs;
    for (const PythonOperator& op : operators) {
      if (!op.Has(host)) continue;
      names.push_back("\"" + op.FunctionName(host) + "\"");
      functions += "\n\n" + op.Function(host);
      makers += op.Maker(host);
      stubs += "\n" + op.Stub(host);
    }
    if (names.empty() && host != Host::kTvmFfi) continue;
    const std::string module = host == Host::kTvmFfi ? "__init__"
                               : host == Host::kJax  ? "jax"
                                                     : "torch";
    files[module + ".py"] = mark + "\"\"\"" + about[i] + "\"\"\"\n" +
                            (names.empty() ? "" : kImports[i]) + "\n__all__ = [" + Joined(names) +
                            "]\n" + (makers.empty() ? "" : "\n") + makers + functions;
    files[module + ".pyi"] = mark + (names.empty() ? "" : kStubImports[i]) + stubs;
    if (host != Host::kTvmFfi)
      files["_" + module + ".py"] = mark + (host == Host::kJax ? kJaxModule : kTorchModule);
  }
  files["_library.py"] =
      mark + Replaced(Replaced(kLibraryModule, "\"@DOMAIN@\"", PythonText(json.at("domain"))),
                      "\"@FILE@\"", PythonText(file));
  files["py.typed"] = mark;
  return files;
}

}  // namespace cli
