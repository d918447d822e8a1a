// KernelCandidates: the kernels of a node in the order of preference with the configurations that
// they propose, and why others propose none. Selection picks one, memory is planned with it, and
// CreateOperator makes it.
#ifndef OPKIT_OP_KERNEL_CANDIDATES_HPP_
#define OPKIT_OP_KERNEL_CANDIDATES_HPP_

#include "opkit/op/create_operator.hpp"

namespace opkit::inline OPKIT_ABI {

// A configuration that a kernel proposes for a node, or why it has none.
struct KernelCandidate {
  const Kernel* kernel = nullptr;  // null: of a preferred backend that the program does not have
  KernelConfig config;
  std::string dropped;  // why it cannot be chosen; empty: it can be
  std::string backend;  // whose it is
  int number = 0;       // of the configuration among those that the kernel proposes
};

// The candidates for a node, best first: the kernels of the backends that the node, the operator's
// or the program's preference ask for, then the others by the rank of their backends, each with
// every configuration that it proposes. A kernel without any is listed once, with the reason, and
// so is a preferred backend that is not there. Configurations of layouts that nothing converts to
// are dropped (core/layout_registry.hpp). Its constructor may still refuse the node, by
// UnsupportedOperatorFeature: take the next one then. Errors: kNotFound as CreateOperator; those
// that a proposer throws; kInvalidArgument for a configuration that does not fit the node.
//
//   for (const KernelCandidate& candidate : KernelCandidates(def, inputs, outputs))
//     if (candidate.dropped.empty())
//       return CreateOperator(def, &ws, {.kernel = candidate.kernel, .config = &candidate.config});
OPKIT_IMAGE_LOCAL std::vector<KernelCandidate> KernelCandidates(
    const OperatorDef& def, std::span<const TensorInfo> inputs,
    std::span<const TensorInfo> outputs);

namespace detail {
// Lets CreateOperator, Invoke and ResolvedOperator select among kernels that propose configurations
// or have a rank. What registers such a kernel, or a rank, calls it.
OPKIT_IMAGE_LOCAL void UseSelection() noexcept;
// Why the kernel cannot run the node on what the workspace holds: it takes no tensor in the
// standard layout, and nothing converts. Empty: it can, or that is not known yet.
OPKIT_IMAGE_LOCAL std::string WhyNotStandard(const Kernel& kernel, const OpSchema& schema,
                                             const OperatorDef& def, const Workspace& ws);
// Why a layout of the configuration cannot be converted to; empty where all can.
OPKIT_IMAGE_LOCAL std::string UnmetLayout(const OperatorDef& def, const KernelConfig& config);
}  // namespace detail

struct SelectOptions {
  int net_position = -1;
  // The operator is to take other shapes too: the kernel is the one chosen for these types, without
  // the configuration that it proposed for them.
  bool any_shapes = false;
  // The caller converts inputs and outputs to the layouts of the configuration. Otherwise those of
  // other layouts than the standard one are passed over.
  bool converts = false;
};

// The operator of the first candidate that takes the node, which is stored in `chosen` where that
// is given; with the better ones that were passed over, and why, in `passed_over`, a line each.
// Errors: as KernelCandidates and CreateOperator; kUnsupported with each candidate's reason where
// none takes it.
OPKIT_IMAGE_LOCAL std::unique_ptr<OperatorBase> CreateSelected(
    const OperatorDef& def, Workspace* ws, std::span<const TensorInfo> inputs,
    std::span<const TensorInfo> outputs, const SelectOptions& options = {},
    KernelCandidate* chosen = nullptr, std::string* passed_over = nullptr);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/impl/kernel_candidates.ipp"
#endif

#endif  // OPKIT_OP_KERNEL_CANDIDATES_HPP_
