// The host's side of opkit_op.gradient: the gradient maker of a loaded operator. For the
// definitions of library.hpp.
#ifndef OPKIT_PLUGIN_LIBRARY_GRADIENT_HPP_
#define OPKIT_PLUGIN_LIBRARY_GRADIENT_HPP_

#include "opkit/op/gradient/gradient.hpp"
#include "opkit/plugin/abi/abi_definition.hpp"
#include "opkit/plugin/library_ops.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// One question to a library, and its answer.
class LibraryGradientCall {
 public:
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
    view_.add_node = &AddNode;
    view_.set_input = &SetInput;
  }
  LibraryGradientCall(const LibraryGradientCall&) = delete;
  LibraryGradientCall& operator=(const LibraryGradientCall&) = delete;

  const opkit_gradient* view() const { return &view_; }
  GradientOpsMeta TakeAnswer() { return std::move(answer_); }

 private:
  static LibraryGradientCall& Of(const opkit_gradient* gradient) {
    return *static_cast<LibraryGradientCall*>(gradient->context);
  }
  static const char* NewName(const opkit_gradient* gradient, const char* value,
                             const char* suffix) {
    const char* name = nullptr;
    static_cast<void>(AnswerCaller([&] {
      LibraryGradientCall& self = Of(gradient);
      self.kept_.push_back(MakeIntrusive<Shared<std::string>>(self.Name(value, suffix)));
      name = static_cast<Shared<std::string>&>(*self.kept_.back()).value.c_str();
    }));
    return name;
  }
  // As GradientMakerBase::GI names: a value's second gradient, and one whose name comes in already
  // (in place), get names of their own.
  std::string Name(const std::string& value, const char* suffix) {
    if (suffix && *suffix) return names_.Fresh(value, suffix);
    const std::string& name = names_.Of(value);
    bool taken = false;
    for (const GradientValue& given : g_output_) taken |= given.dense == name;
    for (size_t i = 0; i < kept_.size(); ++i)
      taken |= static_cast<Shared<std::string>&>(*kept_[i]).value == name;
    return taken ? names_.Fresh(value) : name;
  }
  static opkit_status AddNode(const opkit_gradient* gradient, const opkit_node* node) {
    return AnswerCaller([&] {
      LibraryGradientCall& self = Of(gradient);
      if (!node) Throw(ErrorCode::kInvalidArgument, "a node is null");
      OperatorDef def = DefinitionOfAbi(*node);
      def.Engine(self.def_.engine()).IsGradientOp(true);
      self.answer_.ops.push_back(std::move(def));
    });
  }
  static opkit_status SetInput(const opkit_gradient* gradient, uint64_t input, const char* dense,
                               const char* indices, const char* values) {
    return AnswerCaller([&] {
      std::vector<GradientValue>& all = Of(gradient).answer_.g_input;
      if (input >= all.size())
        Throw(ErrorCode::kOutOfRange, "it names a gradient of input ", input, ", but the node has ",
              all.size());
      const auto text = [](const char* name) { return std::string(name ? name : ""); };
      all[input] = dense && *dense ? GradientValue(text(dense))
                                   : GradientValue::Sparse(text(indices), text(values));
    });
  }

  const OperatorDef& def_;
  const std::vector<GradientValue>& g_output_;
  GradientNames& names_;
  const AbiNode node_;
  std::vector<const char*> dense_, indices_, values_;
  RefCountedList kept_;  // of Shared<std::string>: names that were handed out
  GradientOpsMeta answer_;
  opkit_gradient view_{};
};

// Whether the library says something about the operator's gradient, other than by a backward
// function.
inline bool SaysGradient(const FunctionOpRecord& record) {
  return record.abi.gradient || record.Has(OPKIT_OP_NO_GRADIENT | OPKIT_OP_SHOULD_NOT_GRADIENT |
                                           OPKIT_OP_GRADIENT_NOT_IMPLEMENTED);
}

// The gradient that it says.
inline GradientRegistration MakeLibraryGradient(const LibraryImagePtr& image, const opkit_op& op,
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
      CallLibrary("gradient", op->name, image->name, [&] { return function(op, call.view()); });
      return call.TakeAnswer();
    };
  return gradient;
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_PLUGIN_LIBRARY_GRADIENT_HPP_
