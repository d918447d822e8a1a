// Calls a library's gradient function, and collects the nodes that compute a gradient.
#ifndef OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_GRADIENT_IPP_
#define OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_GRADIENT_IPP_

#include <algorithm>
#include <list>

#include "opkit/op/boundary/convert/abi_node.hpp"
#include "opkit/plugin/load/library_ops.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Makes one call of a library's gradient function, and keeps the nodes and names that it returns.
class LibraryGradientCall {
 public:
  static constexpr const char* kStruct = "opkit_gradient";

  LibraryGradientCall(const OperatorDef& def, const std::vector<GradientValue>& g_output,
                      GradientNames& names)
      : def_(def), g_output_(g_output), names_(names), node_(def) {
    answer_.g_input.resize(def.inputs().size());
    for (const GradientValue& value : g_output) {
      dense_.push_back(value.dense.c_str());
      indices_.push_back(value.indices.c_str());
      values_.push_back(value.values.c_str());
    }
    view_.size = sizeof view_;
    view_.node = &node_.node();
    view_.dense = dense_.data();
    view_.indices = indices_.data();
    view_.values = values_.data();
    view_.context = this;
    view_.new_name = &NewName;
    view_.add_node = &AnswerBy<LibraryGradientCall, &LibraryGradientCall::AddNode>;
    view_.set_input = &AnswerBy<LibraryGradientCall, &LibraryGradientCall::SetInput>;
  }
  LibraryGradientCall(const LibraryGradientCall&) = delete;

  const opkit_gradient* view() const { return &view_; }
  GradientOpsMeta TakeAnswer() { return std::move(answer_); }

 private:
  static const char* NewName(const opkit_gradient* gradient, const char* value,
                             const char* suffix) {
    const char* name = nullptr;
    static_cast<void>(AnswerCaller([&] {
      auto& self = ContextOf<LibraryGradientCall>(gradient);
      if (!value || !*value) Throw(ErrorCode::kInvalidArgument, "new_name() has no value's name");
      name = self.kept_.emplace_back(self.Name(TextOfAbi(value), TextOfAbi(suffix))).c_str();
    }));
    return name;
  }
  // Returns a gradient's name, as GradientMakerBase::GI does. A new name is given to a value's
  // second gradient, and to a gradient whose usual name an output gradient already has (in place).
  std::string Name(const std::string& value, const std::string& suffix) {
    if (!suffix.empty()) return names_.Fresh(value, suffix);
    const std::string& name = names_.Of(value);
    const bool taken = std::ranges::count(g_output_, name, &GradientValue::dense) > 0 ||
                       std::ranges::count(kept_, name) > 0;
    return taken ? names_.Fresh(value) : name;
  }
  void AddNode(const opkit_node* node) {
    OperatorDef def = DefinitionOfAbi(node);
    // Removes arguments that the library copied from the node, if the program's operator does not
    // take them.
    const OpSchema* schema = OpRegistry::Global().FindSchema(def.type());
    for (const auto& [name, value] : def_.args())
      if (const Attribute* given = def.args().Find(name))
        if (schema && !schema->TakesArgument(name) && *given == value)
          def.mutable_args().Remove(name);
    def.Backends(def_.backends()).IsGradientOp(true);
    answer_.ops.push_back(std::move(def));
  }
  void SetInput(uint64_t input, const char* dense, const char* indices, const char* values) {
    std::vector<GradientValue>& all = answer_.g_input;
    if (input >= all.size())
      Throw(ErrorCode::kOutOfRange, "it names a gradient of input ", input, ", but the node has ",
            all.size());
    all[input] = dense && *dense ? GradientValue(TextOfAbi(dense))
                                 : GradientValue::Sparse(TextOfAbi(indices), TextOfAbi(values));
  }

  const OperatorDef& def_;
  const std::vector<GradientValue>& g_output_;
  GradientNames& names_;
  const AbiNode node_;
  std::vector<const char*> dense_, indices_, values_;
  std::list<std::string> kept_;  // names given to the library
  GradientOpsMeta answer_;
  opkit_gradient view_{};
};

// Returns the gradient that the library describes.
OPKIT_INLINE GradientRegistration MakeLibraryGradient(const LibraryImagePtr& image,
                                                      const opkit_op& op,
                                                      const FunctionOpRecord& record) {
  GradientRegistration gradient;
  gradient.file = record.file;
  gradient.line = record.line;
  gradient.kind = record.Has(OPKIT_OP_NO_GRADIENT)                ? GradientKind::kNone
                  : record.Has(OPKIT_OP_SHOULD_NOT_GRADIENT)      ? GradientKind::kShouldNot
                  : record.Has(OPKIT_OP_GRADIENT_NOT_IMPLEMENTED) ? GradientKind::kNotImplemented
                                                                  : GradientKind::kMaker;
  if (gradient.kind == GradientKind::kMaker)
    gradient.make = [image, op = &op, function = record.abi.gradient](
                        const OperatorDef& def, const std::vector<GradientValue>& g_output,
                        GradientNames& names) {
      LibraryGradientCall call(def, g_output, names);
      CallOperatorFunction("gradient", op->name, image->name,
                           [&] { return function(op, call.view()); });
      return call.TakeAnswer();
    };
  return gradient;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_GRADIENT_IPP_
