// OnnxScope: the graph that the ONNX reader is building. Adds nodes, constants and fresh names, and
// knows types of values as far as possible, for rules that depend on them.
#ifndef OPKIT_INTEROP_ONNX_SCOPE_HPP_
#define OPKIT_INTEROP_ONNX_SCOPE_HPP_

#include "opkit/graph/graph_view.hpp"
#include "opkit/interop/missing_operators.hpp"
#include "opkit/interop/onnx/proto.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The state that all graphs of a model share.
struct OnnxContext {
  const OnnxOptions& options;
  OnnxModelProto& model;
  OnnxTensorSource source;
  int64_t num_fresh = 0;
  MissingOperators missing = {};  // missing operators for which the file names a library
};

// A graph under construction, with the types of its values.
class OnnxScope {
 public:
  explicit OnnxScope(OnnxContext& context) : context_(context) {}

  OnnxContext& context() { return context_; }
  Graph& graph() { return graph_; }

  // Returns a name that no value of the model has: `hint`, with a number behind it if needed.
  std::string FreshName(const std::string& hint) {
    std::string name = hint;
    while (context_.model.names.Find(name) >= 0) name = StrCat(hint, "_", ++context_.num_fresh);
    context_.model.names.Add(name);
    return name;
  }
  // Returns a fresh name made from the first output of `def`, such as "y/axes".
  std::string FreshName(const OperatorDef& def, const char* what) {
    const bool named = !def.outputs().empty() && !def.outputs()[0].empty();
    return FreshName(StrCat(named ? def.outputs()[0] : def.type(), "/", what));
  }
  std::string AddConstant(const OperatorDef& def, const char* what, Tensor value) {
    std::string name = FreshName(def, what);
    graph_.AddConstant(name, std::move(value));
    return name;
  }
  // True if a node of the model may read the value, or a graph may return it.
  bool IsRead(std::string_view name) const {
    return !name.empty() && context_.model.read.Find(name) >= 0;
  }

  // Adds a node. Throws kNotFound, with the nearest name, for an operator that is not registered.
  // If the file names a library for the operator, records the operator for one Error about all such
  // operators.
  void AddNode(OperatorDef def, std::string_view domain = "", int64_t opset = 0,
               const OnnxNodeLibrary& library = {}) {
    const std::string plain = def.type();
    if (!domain.empty()) def.Type(TypeIn(domain, plain));
    if (!domain.empty() && def.type() == plain && IsStandard(plain))
      context_.model.about.warnings.push_back(
          StrCat("node ", def, " of domain '", domain, "' runs the standard operator ", plain));
    const bool missing = !context_.options.allow_unknown_operators && !IsRegistered(def.type());
    if (missing && !library.name.empty()) {
      context_.missing.Add(domain == "opkit" ? plain : def.type(), library.name, library.version,
                           PlaceOf(def));
    } else if (missing) {
      const std::vector<std::string> known = RegisteredOperators();
      Throw(ErrorCode::kNotFound, "operator ", def.type(),
            domain.empty() ? "" : StrCat(" of domain '", domain, "'"),
            opset > 0 ? StrCat(" (opset ", opset, ")") : "", " is not registered in this program",
            !domain.empty() && IsStandard(plain)
                ? StrCat("; if it is the standard operator ", plain,
                         ", set OnnxOptions::standard_operators_in_any_domain")
                : SuggestName(NearestName(def.type(), known).empty() ? plain : def.type(), known));
    }
    graph_.AddNode(std::move(def));
  }

  // Records the type and shape that the file declares for a value. Declarations may be out of date.
  // Only those of the model's inputs are `checked`, because each run checks them.
  void Know(const std::string& name, const TensorInfo& info, bool checked = false) {
    Merge(declared_, name, info);
    if (checked) Merge(proven_, name, info);
  }
  // Records that a constant is the default of an input of this type: a run may give it another
  // value.
  void KnowDefault(const std::string& name, const TensorInfo& info) {
    defaults_.Add(name);
    Know(name, info, /*checked=*/true);
  }
  bool IsDefault(const std::string& name) const {
    return defaults_.Find(name) >= 0 && fixed_.Find(name) < 0;
  }
  // Returns a constant whose elements a rule uses; null if the value is none. If the constant is
  // the default of an input, no run can give it another value from now on.
  const Tensor* UseConstant(const std::string& name) {
    const Tensor* constant = graph_.FindConstant(name);
    if (constant && defaults_.Find(name) >= 0) fixed_.Add(name);
    return constant;
  }
  // Returns the type and shape that inference finds for a value from the model's inputs and
  // constants, over the nodes added so far. Ignores the file's other declarations.
  TensorInfo ProvenInfoOf(const std::string& name) {
    const Tensor* constant = graph_.FindConstant(name);
    if (constant && !IsDefault(name)) return TensorInfo::Of(*constant);
    for (; num_inferred_ < graph_.num_nodes(); ++num_inferred_) Infer(graph_.node(num_inferred_));
    return Find(proven_, name);
  }
  // Returns ProvenInfoOf, completed by the file's declarations and by inference from them. May be
  // wrong: rules whose result depends on the type must use ProvenInfoOf.
  TensorInfo InfoOf(const std::string& name) {
    TensorInfo info = ProvenInfoOf(name), declared = Find(declared_, name);
    if (info.dtype == DType::kUndefined) info.dtype = declared.dtype;
    if (!info.shape.has_rank()) info.shape = std::move(declared.shape);
    if (info.element == DType::kUndefined) {
      info.element = declared.element;
      info.holds_sequence = declared.holds_sequence;
    }
    return info;
  }

 private:
  static bool IsRegistered(const std::string& type) {
    return OpRegistry::Global().FindSchema(type) || !OpRegistry::Global().KernelsOf(type).empty();
  }
  static bool IsStandard(const std::string& type) {
    const OpSchema* schema = OpRegistry::Global().FindSchema(type);
    return schema && schema->is_standard();
  }
  static std::string PlaceOf(const OperatorDef& def) {
    if (!def.name().empty()) return StrCat("node '", def.name(), "'");
    return def.outputs().empty() ? "a node" : StrCat("the node of '", def.outputs()[0], "'");
  }
  // Returns "<domain>.<type>", or the plain type if only that is registered. A standard operator
  // does not count as registered for other domains, unless the options allow it.
  std::string TypeIn(std::string_view domain, const std::string& type) const {
    std::string full = StrCat(domain, ".", type);
    const bool plain = IsRegistered(type) &&
                       (context_.options.standard_operators_in_any_domain || !IsStandard(type));
    return plain && !IsRegistered(full) ? type : full;
  }

  using Infos = std::vector<TensorInfo>;  // by the number in `names_`

  void Merge(Infos& infos, const std::string& name, const TensorInfo& info) {
    const auto number = static_cast<size_t>(names_.Add(name));
    if (number >= infos.size()) infos.resize(number + 1);
    TensorInfo& known = infos[number];
    if (known.dtype == DType::kUndefined) known.dtype = info.dtype;
    if (known.element == DType::kUndefined) {
      known.element = info.element;
      known.holds_sequence = info.holds_sequence;
    }
    if (!known.shape.has_rank()) known.shape = info.shape;
  }
  TensorInfo Find(const Infos& infos, const std::string& name) const {
    const int number = names_.Find(name);
    return number < 0 || Index(number) >= infos.size() ? TensorInfo() : infos[Index(number)];
  }
  // Infers the outputs of a node from proven types. If these are not enough, infers from declared
  // types.
  void Infer(const OperatorDef& def) {
    const OpSchema* schema = OpRegistry::Global().FindSchema(def.type());
    if (!schema) return;
    if (!InferFrom(proven_, *schema, def)) InferFrom(declared_, *schema, def);
  }
  // False if a dtype or rank of an output stays unknown.
  bool InferFrom(Infos& infos, const OpSchema& schema, const OperatorDef& def) {
    std::vector<TensorInfo> inputs;
    for (const std::string& name : def.inputs()) {
      const Tensor* constant = graph_.FindConstant(name);
      inputs.push_back(constant && !IsDefault(name) ? TensorInfo::OfConstant(*constant)
                                                    : Find(infos, name));
    }
    InferenceContext inference(def, std::move(inputs));
    try {
      schema.Infer(inference);
    } catch (...) {
      return false;  // compiling the graph reports a wrong node
    }
    bool all_known = true;
    for (size_t i = 0; i < def.outputs().size(); ++i) {
      const TensorInfo& output = inference.outputs()[i];
      if (def.outputs()[i].empty()) continue;
      Merge(infos, def.outputs()[i], output);
      all_known &= output.dtype != DType::kUndefined && output.shape.has_rank();
    }
    return all_known;
  }

  OnnxContext& context_;
  Graph graph_;
  NameIndex names_;
  NameIndex defaults_, fixed_;
  Infos declared_, proven_;
  int num_inferred_ = 0;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_ONNX_SCOPE_HPP_
