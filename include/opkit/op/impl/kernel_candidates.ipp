// The definitions of opkit/op/kernel_candidates.hpp.
#ifndef OPKIT_OP_IMPL_KERNEL_CANDIDATES_IPP_
#define OPKIT_OP_IMPL_KERNEL_CANDIDATES_IPP_

#include "opkit/op/kernel_candidates.hpp"

namespace opkit::inline OPKIT_ABI {

OPKIT_INLINE std::vector<KernelCandidate> KernelCandidates(const OperatorDef& def,
                                                           std::span<const TensorInfo> inputs,
                                                           std::span<const TensorInfo> outputs) {
  const OpSchema& schema = OpRegistry::Global().GetSchema(def.type());
  std::vector<KernelCandidate> out;
  for (const Kernel* kernel : detail::KernelOrder(def, /*by_rank=*/true)) {
    if (!kernel->propose) {
      KernelCandidate& plain = out.emplace_back();
      plain.kernel = kernel;
      for (int o = 0; o < static_cast<int>(def.outputs().size()); ++o)
        for (int i = 0; i < static_cast<int>(def.inputs().size()); ++i)
          if (schema.CanInplace(i, o)) plain.config.inplace.emplace_back(i, o);
      continue;
    }
    std::string dropped = "it proposes no configuration for this node";
    try {
      for (KernelConfig& config : kernel->propose({def, inputs, outputs})) {
        detail::CheckConfig(*kernel, def, config);
        out.push_back({kernel, std::move(config), {}});
        dropped.clear();
      }
    } catch (const UnsupportedOperatorFeature& error) {
      dropped = error.message();
    } catch (...) {
      detail::RethrowInContext(StrCat("in the proposal for operator ", def,
                                      " of the kernel registered at ", kernel->Place()));
    }
    if (!dropped.empty()) out.push_back({kernel, {}, std::move(dropped)});
  }
  if (out.empty()) detail::ThrowNoKernel(def, {});
  return out;
}

OPKIT_INLINE std::unique_ptr<OperatorBase> CreateSelected(const OperatorDef& def, Workspace* ws,
                                                          std::span<const TensorInfo> inputs,
                                                          std::span<const TensorInfo> outputs,
                                                          int net_position,
                                                          KernelCandidate* chosen) {
  std::string refused;
  for (KernelCandidate& candidate : KernelCandidates(def, inputs, outputs)) {
    if (candidate.dropped.empty()) {
      try {
        auto op = CreateOperator(def, ws,
                                 {.kernel = candidate.kernel,
                                  .config = &candidate.config,
                                  .net_position = net_position});
        if (chosen) *chosen = std::move(candidate);
        return op;
      } catch (const UnsupportedOperatorFeature& error) {
        candidate.dropped = error.message();
      }
    }
    refused += StrCat("\n  backend ", candidate.kernel->backend, ": ", candidate.dropped);
  }
  detail::ThrowNoKernel(def, refused);
}

}  // namespace opkit

#endif  // OPKIT_OP_IMPL_KERNEL_CANDIDATES_IPP_
