// KernelCandidates: lists the kernels of a node in the order of preference, with their proposed
// configurations, or the reason why a kernel proposes none. Selection picks a candidate, memory is
// planned with it, and CreateOperator makes its operator.
#ifndef OPKIT_OP_KERNEL_CANDIDATES_HPP_
#define OPKIT_OP_KERNEL_CANDIDATES_HPP_

#include "opkit/op/create_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// A configuration that a kernel proposes for a node, or the reason why the kernel has none.
struct KernelCandidate {
  const Kernel* kernel = nullptr;  // null: a preferred backend without a kernel in the program
  KernelConfig config;
  std::string dropped;  // why it cannot be chosen; empty if it can be
  std::string backend;  // the kernel's backend
  int number = 0;       // index of the configuration in the kernel's proposals

  // Returns the backend and the variant, "onednn winograd".
  std::string name() const { return detail::WithVariant(backend, config.variant); }
};

// Returns the candidates for a node, best first: the kernels of the backends that the node, or a
// preference of the operator or program, requests; then all other kernels by the rank of their
// backends. Each kernel is listed with every configuration that it proposes. A kernel without a
// configuration is listed once with the reason; so is a preferred backend without kernels. Drops
// configurations with layouts that no conversion supports (core/layout_registry.hpp). A constructor
// may still refuse the node: it throws UnsupportedOperatorFeature. Take the next candidate then.
// Throws kNotFound like CreateOperator; the errors of a proposer; kInvalidArgument for a
// configuration that does not fit the node.
//
//   for (const KernelCandidate& candidate : KernelCandidates(def, inputs, outputs))
//     if (candidate.dropped.empty())
//       return CreateOperator(def, &ws, {.kernel = candidate.kernel, .config = &candidate.config});
OPKIT_IMAGE_LOCAL std::vector<KernelCandidate> KernelCandidates(
    const OperatorDef& def, std::span<const TensorInfo> inputs,
    std::span<const TensorInfo> outputs);

namespace detail {
// Lets CreateOperator, Invoke and ResolvedOperator select among kernels that propose configurations
// or have a rank. Every registration of such a kernel or of a rank calls this function.
OPKIT_IMAGE_LOCAL void UseSelection() noexcept;
// Returns the reason why the kernel cannot run the node with the workspace's tensors: all its
// configurations need other layouts than the standard layout, and no code converts the tensors.
// Empty if the kernel can run the node, or if this is not known yet.
OPKIT_IMAGE_LOCAL std::string WhyNotStandard(const Kernel& kernel, const OpSchema& schema,
                                             const OperatorDef& def, const Workspace& ws);
// Returns the layouts of a configuration as text, "NHWC, standard -> NHWC"; empty if all are the
// standard layout.
OPKIT_IMAGE_LOCAL std::string LayoutsText(const KernelConfig& config);
// True if two configurations have the same layouts; IsSameConfig: and the same variant.
OPKIT_IMAGE_LOCAL bool HaveSameLayouts(const KernelConfig& a, const KernelConfig& b);
inline bool IsSameConfig(const KernelConfig& a, const KernelConfig& b) {
  return a.variant == b.variant && HaveSameLayouts(a, b);
}
// Returns the reason why no conversion supports a layout of the configuration; empty if conversions
// support all layouts.
OPKIT_IMAGE_LOCAL std::string UnmetLayout(const OperatorDef& def, const KernelConfig& config);
}  // namespace detail

// The options of CreateSelected.
struct SelectOptions {
  int net_position = -1;
  // True if the operator must also accept other shapes: the kernel is selected for the given types,
  // but made without the configuration that it proposed for them.
  bool any_shapes = false;
  // True if the caller converts inputs and outputs to the layouts of the configuration. If false,
  // skips configurations with other layouts than the standard one.
  bool converts = false;
};

// Makes the operator of the first candidate that accepts the node. Stores the candidate in
// `chosen`, and in `passed_over` the better candidates with the reasons against them, a line each;
// both may be null. Throws the errors of KernelCandidates and CreateOperator; kUnsupported with
// each candidate's reason if none accepts the node.
OPKIT_IMAGE_LOCAL std::unique_ptr<OperatorBase> CreateSelected(
    const OperatorDef& def, Workspace* ws, std::span<const TensorInfo> inputs,
    std::span<const TensorInfo> outputs, const SelectOptions& options = {},
    KernelCandidate* chosen = nullptr, std::string* passed_over = nullptr);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/impl/kernel_candidates.ipp"
#endif

#endif  // OPKIT_OP_KERNEL_CANDIDATES_HPP_
