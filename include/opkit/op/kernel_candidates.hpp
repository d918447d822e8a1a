// KernelCandidates: what can be chosen for a node: the kernels in the order of preference with the
// configurations that they propose, and why others propose none. Selection picks one, memory is
// planned with it, and CreateOperator makes it.
#ifndef OPKIT_OP_KERNEL_CANDIDATES_HPP_
#define OPKIT_OP_KERNEL_CANDIDATES_HPP_

#include "opkit/op/create_operator.hpp"

namespace opkit::inline OPKIT_ABI {

// A configuration that a kernel proposes for a node, or why it has none.
struct KernelCandidate {
  const Kernel* kernel = nullptr;
  KernelConfig config;
  std::string dropped;  // empty: it can be chosen
};

// What can be chosen for a node, best first: the kernels of the backends that the node, the
// operator's or the program's preference ask for, then by the rank of their backends, each with
// every configuration that it proposes. A kernel without any is listed once, with the reason. Its
// constructor may still refuse the node, by UnsupportedOperatorFeature: then the next is to be
// taken. Errors: kNotFound as CreateOperator; what a proposer throws, or proposes wrongly.
//
//   for (const KernelCandidate& candidate : KernelCandidates(def, inputs, outputs))
//     if (candidate.dropped.empty())
//       return CreateOperator(def, &ws, {.kernel = candidate.kernel, .config = &candidate.config});
//
// A template, so that programs that select nothing do not compile it.
template <class Candidate = KernelCandidate>
OPKIT_IMAGE_LOCAL std::vector<Candidate> KernelCandidates(const OperatorDef& def,
                                                          std::span<const TensorInfo> inputs,
                                                          std::span<const TensorInfo> outputs) {
  const OpSchema& schema = OpRegistry::Global().GetSchema(def.type());
  std::vector<Candidate> out;
  for (const Kernel* kernel : detail::KernelOrder(def, /*by_rank=*/true)) {
    if (!kernel->propose) {
      Candidate& plain = out.emplace_back();
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
    } catch (Error& error) {
      error.AddContext(StrCat("in the proposal for operator ", ToString(def),
                              " of the kernel registered at ", kernel->Place()));
      throw;
    }
    if (!dropped.empty()) out.push_back({kernel, {}, std::move(dropped)});
  }
  if (out.empty()) detail::ThrowNoKernel(def, {});
  return out;
}

// The operator of the first candidate that takes the node, which is stored in `chosen` where that
// is given. Errors: as KernelCandidates and CreateOperator; kUnsupported with each candidate's
// reason where none takes it.
template <class Candidate = KernelCandidate>
OPKIT_IMAGE_LOCAL std::unique_ptr<OperatorBase> CreateSelected(
    const OperatorDef& def, Workspace* ws, std::span<const TensorInfo> inputs,
    std::span<const TensorInfo> outputs, int net_position = -1, Candidate* chosen = nullptr) {
  std::string refused;
  for (Candidate& candidate : KernelCandidates<Candidate>(def, inputs, outputs)) {
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

#endif  // OPKIT_OP_KERNEL_CANDIDATES_HPP_
