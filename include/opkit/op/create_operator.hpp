// CreateOperator: makes the operator of a definition, bound to a workspace. Verifies the node
// against its schema, then tries kernels in the order of preference until one accepts it.
#ifndef OPKIT_OP_CREATE_OPERATOR_HPP_
#define OPKIT_OP_CREATE_OPERATOR_HPP_

#include "opkit/base/hook.hpp"
#include "opkit/op/op_registry.hpp"
#include "opkit/op/operator_base.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
// Decisions about a node that were made before its operator is created.
struct CreateOptions {
  const Kernel* kernel = nullptr;        // null: the first kernel that accepts the node
  const KernelConfig* config = nullptr;  // a configuration that the kernel proposed; copied
  int net_position = -1;
  // True if the caller converts inputs and outputs to the layouts of the operator's configuration,
  // or selects another operator before it runs. If false, skips a kernel that proposes only layouts
  // other than the standard one for the values in the workspace.
  bool converts = false;
};

// Creates an operator. Throws kNotFound, with the nearest name, for an unknown operator or backend,
// a missing kernel for the device, or a missing input blob; kInvalidArgument if the node breaks the
// schema, or if the given kernel or configuration is not for it; kUnsupported, with each reason, if
// every kernel refused the node; kAlreadyExists if the operator is registered twice. Throws
// UnsupportedOperatorFeature if the caller gave a kernel that refuses the node; another kernel may
// accept the node. After an error the workspace is unchanged.
OPKIT_IMAGE_LOCAL std::unique_ptr<OperatorBase> CreateOperator(const OperatorDef& def,
                                                               Workspace* ws,
                                                               const CreateOptions& options);
OPKIT_IMAGE_LOCAL std::unique_ptr<OperatorBase> CreateOperator(const OperatorDef& def,
                                                               Workspace* ws,
                                                               int net_position = -1);

namespace detail {

// Returns the types of the named tensors; an unknown type for a blob that is no tensor or has no
// memory.
std::vector<TensorInfo> TypesIn(const Workspace& ws, const std::vector<std::string>& names);

// Returns the backends of the environment variable OPKIT_BACKENDS, "eigen,reference": the only
// backends that may run in this process. If empty, all backends may run. In a loaded library the
// plain kernels may always run.
OPKIT_IMAGE_LOCAL const BackendPreference& AllowedBackends();
// Returns the requested backends in order: from the node, from OPKIT_BACKENDS, from the preferences
// for the operator and for all operators, and last the plain operator. For a node that requires its
// backends, returns only those.
OPKIT_IMAGE_LOCAL BackendPreference BackendOrder(const OperatorDef& def);
// Returns the backends of BackendOrder for which the program has no kernel, each with the sentence
// of WhyNoBackend.
OPKIT_IMAGE_LOCAL std::vector<std::pair<std::string, std::string>> MissingBackends(
    const OperatorDef& def);
// Throws the first of MissingBackends as an Error (kNotFound).
OPKIT_IMAGE_LOCAL void CheckBackends(const OperatorDef& def);
// Throws kNotFound if the node itself names a backend for which the program has no kernel.
OPKIT_IMAGE_LOCAL void CheckEngine(const OperatorDef& def);
// Returns the kernels for the node, best first: the kernels of the requested backends, then the
// plain kernel, then all others, so that an operator without a plain kernel still runs. `by_rank`
// is for a node whose types are known. It orders all kernels that are not requested, including the
// plain kernel, by the ranks of their backends. For a node that requires its backends, returns only
// their kernels; throws kNotFound if none of them has a kernel.
OPKIT_IMAGE_LOCAL std::vector<const Kernel*> KernelOrder(const OperatorDef& def,
                                                         bool by_rank = false);
// Throws kNotFound for a node that has kernels only from `backends`, which OPKIT_BACKENDS excludes.
[[noreturn]] OPKIT_COLD OPKIT_IMAGE_LOCAL void ThrowNoneAllowed(const OperatorDef& def,
                                                                const std::string& backends);
// Throws kUnsupported if `refused` lists kernels with their reasons, kNotFound if it is empty.
[[noreturn]] OPKIT_COLD OPKIT_IMAGE_LOCAL void ThrowNoKernel(const OperatorDef& def,
                                                             const std::string& refused);
// Throws kInvalidArgument if the node breaks the schema.
void CheckNode(const OpSchema& schema, const OperatorDef& def);
// Throws kInvalidArgument if the kernel is for another operator or device.
void CheckIsFor(const Kernel& kernel, const OperatorDef& def);
// Returns masks in which bit i of masks[o] is set if output o may share memory with input i. The
// configuration decides, if there is one; otherwise the schema.
std::vector<uint64_t> InplaceMasks(const OpSchema& schema, const OperatorDef& def,
                                   const KernelConfig* config);
// Returns a mask in which bit i is set if the node writes to input i.
uint64_t MutatedInputs(const OpSchema& schema, const OperatorDef& def);
// Rethrows the exception of an operator's constructor, with the node and the kernel as context. For
// use in a catch block.
[[noreturn]] OPKIT_COLD void RethrowFromConstructor(const Kernel& kernel, const OperatorDef& def);
// Computes the work of a run for a profile; the function behind RunCost::compute.
SpanWork ComputeWork(const RunCost& run, const OperatorDef& def,
                     const std::vector<TensorInfo>& inputs, const std::vector<TensorInfo>& outputs);
// Throws kInvalidArgument for a configuration that does not fit the node.
void CheckConfig(const Kernel& kernel, const OperatorDef& def, const KernelConfig& config);
// Hooks to functions of kernel_candidates.hpp, which UseSelection fills. Only programs with kernels
// that propose configurations, or with ranked backends, need them.
inline constexpr const char* kProposes = "a kernel that proposes configurations, or has a rank,";
inline constexpr const char* kRegisters = "opkit/op/registration.hpp";
OPKIT_IMAGE_LOCAL inline constinit Hook<std::string(const Kernel&, const OpSchema&,
                                                    const OperatorDef&, const Workspace&)>
    g_why_not_standard{kProposes, kRegisters};
// Calls CreateSelected; sets *is_standard if all layouts of the chosen configuration are standard.
OPKIT_IMAGE_LOCAL inline constinit Hook<std::unique_ptr<OperatorBase>(
    const OperatorDef&, Workspace*, std::span<const TensorInfo> inputs,
    std::span<const TensorInfo> outputs, bool converts, bool* is_standard)>
    g_create_selected{kProposes, kRegisters};
// Makes the operator by `kernel` and sets its registration and in-place pairs. Errors get the node
// and the kernel as context. Returns null if the kernel's creator returned null.
std::unique_ptr<OperatorBase> CreateWith(const Kernel& kernel, const OpSchema& schema,
                                         const OperatorDef& def, Workspace* ws,
                                         const KernelConfig* config);

}  // namespace detail
}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/impl/create_operator.ipp"
#endif

#endif  // OPKIT_OP_CREATE_OPERATOR_HPP_
