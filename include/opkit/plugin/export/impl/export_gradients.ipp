// Lets the host call the gradient makers of a library's registries.
#ifndef OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_GRADIENTS_IPP_
#define OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_GRADIENTS_IPP_

#include <map>

#include "opkit/op/boundary/convert/abi_node.hpp"
#include "opkit/op/gradient/gradient.hpp"
#include "opkit/plugin/export/export_gradients.hpp"
#include "opkit/plugin/export/export_operators.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Calls the library's gradient maker, which chooses names for new values. Names from the host's
// new_name then replace these names.
OPKIT_IMAGE_LOCAL inline opkit_status ExportedGradient(const opkit_op*,
                                                       const opkit_gradient* gradient) {
  return GuardedCall([&] {
    const OperatorDef def = DefinitionOfAbi(gradient->node);
    std::vector<GradientValue> g_output;
    for (size_t o = 0; o < def.outputs().size(); ++o) {
      GradientValue& value = g_output.emplace_back();
      value.dense = gradient->dense[o];
      value.indices = gradient->indices[o];
      value.values = gradient->values[o];
    }
    GradientNames names;
    GradientOpsMeta meta = GetGradientForOp(def, g_output, names);
    std::map<std::string, std::string> renamed;
    const auto rename = [&](std::string& name) {
      const std::string* value = names.ValueOf(name);
      if (!value) return;
      std::string& known = renamed[name];
      if (known.empty()) {
        const std::string own = *value, suffix = name.substr(own.size());
        const char* given = gradient->new_name(gradient, own.c_str(),
                                               names.Of(own) == name ? nullptr : suffix.c_str());
        if (!given) Throw(ErrorCode::kOperatorFailed, g_host->failure_text());
        known = given;
      }
      name = known;
    };
    for (size_t i = 0; i < meta.g_input.size(); ++i) {
      GradientValue& value = meta.g_input[i];
      for (std::string* name : {&value.dense, &value.indices, &value.values}) rename(*name);
      AcceptAnswer(gradient->set_input(gradient, i, value.dense.c_str(), value.indices.c_str(),
                                       value.values.c_str()));
    }
    for (OperatorDef& op : meta.ops) {
      for (std::string& name : op.mutable_inputs()) rename(name);
      for (std::string& name : op.mutable_outputs()) rename(name);
      const AbiNode node(op);
      AcceptAnswer(gradient->add_node(gradient, &node.node()));
    }
  });
}

// Describes a registered gradient in the form that the host reads.
OPKIT_IMAGE_LOCAL inline void ReadGradient(FunctionOpRecord& record) {
  const GradientRegistration* gradient = GradientRegistry::Global().Find(record.name);
  if (!gradient) return;
  switch (gradient->kind) {
    case GradientKind::kMaker:
      record.abi.gradient = &ExportedGradient;
      break;
    case GradientKind::kNone:
      record.flags |= OPKIT_OP_NO_GRADIENT;
      break;
    case GradientKind::kShouldNot:
      record.flags |= OPKIT_OP_SHOULD_NOT_GRADIENT;
      break;
    case GradientKind::kNotImplemented:
      record.flags |= OPKIT_OP_GRADIENT_NOT_IMPLEMENTED;
  }
}
OPKIT_IMAGE_LOCAL inline const bool kFillsExportOfGradients = g_read_gradient.Fill(&ReadGradient);

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_GRADIENTS_IPP_
