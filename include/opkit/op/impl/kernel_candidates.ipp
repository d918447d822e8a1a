// The definitions of KernelCandidates and CreateSelected.
#ifndef OPKIT_OP_IMPL_KERNEL_CANDIDATES_IPP_
#define OPKIT_OP_IMPL_KERNEL_CANDIDATES_IPP_

#include "opkit/op/kernel_candidates.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The reason for skipping a kernel with other layouts than the standard one.
inline constexpr const char* kNothingConverts =
    "it takes another layout than the standard one, and nothing converts here";

[[noreturn]] OPKIT_COLD inline void RethrowFromProposal(const Kernel& kernel,
                                                        const OperatorDef& def) {
  RethrowInContext(StrCat("in the proposal for operator ", def, " of the kernel registered at ",
                          kernel.Place()));
}
OPKIT_INLINE std::string WhyNotStandard(const Kernel& kernel, const OpSchema& schema,
                                        const OperatorDef& def, const Workspace& ws) {
  const std::vector<TensorInfo> infos = TypesIn(ws, def.inputs());
  std::vector<KernelConfig> proposed;
  try {
    proposed = kernel.propose({def, infos, schema.InferOutputs(def, infos)});
  } catch (const Error&) {  // types are not known yet, or the run reports the mistake
    return {};
  } catch (...) {
    RethrowFromProposal(kernel, def);
  }
  for (const KernelConfig& config : proposed)
    if (config.is_standard()) return {};
  return proposed.empty() ? "" : kNothingConverts;
}

OPKIT_COLD OPKIT_INLINE std::string LayoutsText(const KernelConfig& config) {
  if (config.is_standard()) return {};
  std::string text;
  for (const auto* layouts : {&config.input_layouts, &config.output_layouts}) {
    text += layouts == &config.input_layouts ? "" : " -> ";
    if (layouts->empty()) text += "standard";
    for (size_t i = 0; i < layouts->size(); ++i)
      text += (i == 0 ? "" : ", ") + ToString((*layouts)[i]);
  }
  return text;
}
OPKIT_INLINE bool HaveSameLayouts(const KernelConfig& a, const KernelConfig& b) {
  const size_t inputs = (std::max)(a.input_layouts.size(), b.input_layouts.size());
  for (size_t i = 0; i < inputs; ++i)
    if (a.input_layout(i) != b.input_layout(i)) return false;
  const size_t outputs = (std::max)(a.output_layouts.size(), b.output_layouts.size());
  for (size_t o = 0; o < outputs; ++o)
    if (a.output_layout(o) != b.output_layout(o)) return false;
  return true;
}

OPKIT_INLINE std::string UnmetLayout(const OperatorDef& def, const KernelConfig& config) {
  for (const auto* layouts : {&config.input_layouts, &config.output_layouts})
    for (size_t i = 0; i < layouts->size(); ++i) {
      const Layout& layout = (*layouts)[i];
      if (layout.is_standard()) continue;
      const char* why = nullptr;
      if (!g_layout_name || g_layout_name(layout.id).empty())
        why = "and nothing converts between it and the standard layout";
      if (!IsHostAccessible(def.device().type)) why = "and layouts are converted on the host alone";
      if (why)
        return StrCat("it proposes ", ToString(layout), " for ",
                      layouts == &config.input_layouts ? "input " : "output ", i, ", ", why);
    }
  return {};
}

}  // namespace detail

OPKIT_INLINE std::vector<KernelCandidate> KernelCandidates(const OperatorDef& def,
                                                           std::span<const TensorInfo> inputs,
                                                           std::span<const TensorInfo> outputs) {
  const OpSchema& schema = OpRegistry::Global().GetSchema(def.type());
  std::vector<KernelCandidate> out;
  const auto kernels = detail::KernelOrder(def, /*by_rank=*/true);
  for (auto& [backend, why] : detail::MissingBackends(def))
    out.push_back({nullptr, {}, std::move(why), std::move(backend)});
  for (const Kernel* kernel : kernels) {
    if (std::string why = OpRegistry::Global().WhyUnavailable(*kernel); !why.empty()) {
      out.push_back({kernel, {}, std::move(why), kernel->backend});
      continue;
    }
    if (!kernel->propose) {
      KernelCandidate& plain = out.emplace_back(KernelCandidate{kernel, {}, {}, kernel->backend});
      for (int o = 0; o < static_cast<int>(def.outputs().size()); ++o)
        for (int i = 0; i < static_cast<int>(def.inputs().size()); ++i)
          if (schema.CanInplace(i, o)) plain.config.inplace.emplace_back(i, o);
      continue;
    }
    std::string dropped = "it proposes no configuration for this node";
    int number = 0;
    try {
      for (KernelConfig& config : kernel->propose({def, inputs, outputs})) {
        detail::CheckConfig(*kernel, def, config);
        out.push_back({kernel, std::move(config), {}, kernel->backend, number++});
        out.back().dropped = detail::UnmetLayout(def, out.back().config);
        dropped.clear();
      }
    } catch (const UnsupportedOperatorFeature& error) {
      dropped = error.message();
    } catch (...) {
      detail::RethrowFromProposal(*kernel, def);
    }
    if (!dropped.empty()) out.push_back({kernel, {}, std::move(dropped), kernel->backend});
  }
  if (kernels.empty()) detail::ThrowNoKernel(def, {});
  return out;
}

OPKIT_INLINE std::unique_ptr<OperatorBase> CreateSelected(const OperatorDef& def, Workspace* ws,
                                                          std::span<const TensorInfo> inputs,
                                                          std::span<const TensorInfo> outputs,
                                                          const SelectOptions& options,
                                                          KernelCandidate* chosen,
                                                          std::string* passed_over) try {
  const detail::RegistryUse use;
  std::string refused;
  for (KernelCandidate& candidate : KernelCandidates(def, inputs, outputs)) {
    if (!options.converts && !candidate.config.is_standard() && candidate.dropped.empty())
      candidate.dropped = detail::kNothingConverts;
    if (candidate.dropped.empty()) {
      try {
        auto op = CreateOperator(def, ws,
                                 {.kernel = candidate.kernel,
                                  .config = options.any_shapes ? nullptr : &candidate.config,
                                  .net_position = options.net_position});
        if (chosen) *chosen = std::move(candidate);
        if (passed_over) *passed_over = std::move(refused);
        return op;
      } catch (const UnsupportedOperatorFeature& error) {
        candidate.dropped = error.message();
      }
    }
    refused += StrCat("\n  backend ", candidate.name(), ": ", candidate.dropped);
  }
  detail::ThrowNoKernel(def, refused);
} catch (...) {
  if (ws && options.net_position != -1) ws->last_failed_op_net_position = options.net_position;
  throw;
}

namespace detail {

inline std::unique_ptr<OperatorBase> CreateSelectedFor(const OperatorDef& def, Workspace* ws,
                                                       std::span<const TensorInfo> inputs,
                                                       std::span<const TensorInfo> outputs,
                                                       bool converts, bool* is_standard) {
  KernelCandidate chosen;
  auto op = CreateSelected(def, ws, inputs, outputs, {.converts = converts}, &chosen);
  *is_standard = chosen.config.is_standard();
  return op;
}
OPKIT_INLINE void UseSelection() noexcept {
  g_why_not_standard.Fill(&WhyNotStandard);
  g_create_selected.Fill(&CreateSelectedFor);
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_OP_IMPL_KERNEL_CANDIDATES_IPP_
