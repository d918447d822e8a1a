// The definitions of opkit/op/kernel_candidates.hpp.
#ifndef OPKIT_OP_IMPL_KERNEL_CANDIDATES_IPP_
#define OPKIT_OP_IMPL_KERNEL_CANDIDATES_IPP_

#include "opkit/core/layout_registry.hpp"
#include "opkit/op/kernel_candidates.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

OPKIT_INLINE std::string UnmetLayout(const OperatorDef& def, const KernelConfig& config) {
  for (const auto* layouts : {&config.input_layouts, &config.output_layouts})
    for (size_t i = 0; i < layouts->size(); ++i) {
      const Layout& layout = (*layouts)[i];
      if (layout.is_standard()) continue;
      const char* why = nullptr;
      if (!IsRegisteredLayout(layout.id))
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
  detail::g_check_config.Fill(&detail::CheckConfig);
  const OpSchema& schema = OpRegistry::Global().GetSchema(def.type());
  std::vector<KernelCandidate> out;
  const auto kernels = detail::KernelOrder(def, /*by_rank=*/true);
  for (auto& [backend, why] : detail::MissingBackends(def))
    out.push_back({nullptr, {}, std::move(why), std::move(backend)});
  for (const Kernel* kernel : kernels) {
    if (std::string why = OpRegistry::Global().WhyUnavailable(kernel->backend); !why.empty()) {
      out.push_back({kernel, {}, std::move(why), kernel->backend});
      continue;
    }
    if (!kernel->propose) {
      KernelCandidate& plain = out.emplace_back();
      plain.kernel = kernel;
      plain.backend = kernel->backend;
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
      detail::RethrowInContext(StrCat("in the proposal for operator ", def,
                                      " of the kernel registered at ", kernel->Place()));
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
    refused += StrCat("\n  backend ", candidate.backend, ": ", candidate.dropped);
  }
  detail::ThrowNoKernel(def, refused);
} catch (...) {
  if (ws && options.net_position != -1) ws->last_failed_op_net_position = options.net_position;
  throw;
}

}  // namespace opkit

#endif  // OPKIT_OP_IMPL_KERNEL_CANDIDATES_IPP_
