// CreateOperator: makes the operator of a definition, bound to a workspace. Verifies the node
// against its schema, then tries kernels in the order of preference until one takes it.
#ifndef OPKIT_OP_CREATE_OPERATOR_HPP_
#define OPKIT_OP_CREATE_OPERATOR_HPP_

#include "opkit/base/hook.hpp"
#include "opkit/op/op_registry.hpp"
#include "opkit/op/operator_base.hpp"

namespace opkit::inline OPKIT_ABI {
// Decisions about a node that were taken before its operator is made.
struct CreateOptions {
  const Kernel* kernel = nullptr;        // null: the first one that takes the node
  const KernelConfig* config = nullptr;  // one that the kernel proposed; copied
  int net_position = -1;
  // The caller converts inputs and outputs to the layouts of the operator's configuration, or
  // selects another operator before it runs. Otherwise a kernel of other layouts than the standard
  // one is passed over, where it proposes them for what the workspace holds.
  bool converts = false;
};

// Errors: kNotFound (unknown operator or engine, no kernel for the device, missing input blob),
// with the nearest name; kInvalidArgument (the node breaks the schema, or the kernel or
// configuration given is not for it); kUnsupported (every kernel refused it, with each reason);
// kAlreadyExists (registered twice). UnsupportedOperatorFeature where a kernel was given and
// refuses the node: the next one may take it. The workspace is then as it was.
OPKIT_IMAGE_LOCAL std::unique_ptr<OperatorBase> CreateOperator(const OperatorDef& def,
                                                               Workspace* ws,
                                                               const CreateOptions& options);
OPKIT_IMAGE_LOCAL std::unique_ptr<OperatorBase> CreateOperator(const OperatorDef& def,
                                                               Workspace* ws,
                                                               int net_position = -1);

namespace detail {

// What a workspace holds by these names; unknown where that is no tensor or one without memory.
std::vector<TensorInfo> TypesIn(const Workspace& ws, const std::vector<std::string>& names);

// Those of the environment's OPKIT_BACKENDS, "eigen,reference": no others run in this process.
// Empty: all may. In a library its plain kernels always may.
OPKIT_IMAGE_LOCAL const BackendPreference& AllowedBackends();
// The backends that are asked for, in order: by the node, by OPKIT_BACKENDS, by the preferences for
// its operator and for all, and the plain operator.
OPKIT_IMAGE_LOCAL BackendPreference BackendOrder(const OperatorDef& def);
// The backends of BackendOrder that no kernel of the program has, each with the sentence of
// WhyNoBackend.
OPKIT_IMAGE_LOCAL std::vector<std::pair<std::string, std::string>> MissingBackends(
    const OperatorDef& def);
// Throws the first of MissingBackends as an Error (kNotFound).
OPKIT_IMAGE_LOCAL void CheckBackends(const OperatorDef& def);
// Error (kNotFound) for a backend that the node itself names and no kernel of the program has.
OPKIT_IMAGE_LOCAL void CheckEngine(const OperatorDef& def);
// Kernels for the node, best first: those of the backends that were asked for, the plain one, and
// the rest, so that an operator that has only such kernels still runs. `by_rank`, for a node whose
// types are known, orders the rest by the ranks of their backends, the plain one among them. Of a
// node that requires its backends those alone; Error (kNotFound) where none has a kernel.
OPKIT_IMAGE_LOCAL std::vector<const Kernel*> KernelOrder(const OperatorDef& def,
                                                         bool by_rank = false);
// The Error (kNotFound) of a node whose kernels are of these backends, which OPKIT_BACKENDS leaves
// out.
[[noreturn]] OPKIT_COLD OPKIT_IMAGE_LOCAL void ThrowNoneAllowed(const OperatorDef& def,
                                                                const std::string& backends);
// `refused` lists kernels with their reasons; empty where there are none.
[[noreturn]] OPKIT_COLD OPKIT_IMAGE_LOCAL void ThrowNoKernel(const OperatorDef& def,
                                                             const std::string& refused);
// Error (kInvalidArgument) where the node breaks the schema.
void CheckNode(const OpSchema& schema, const OperatorDef& def);
// Error (kInvalidArgument) where the kernel is another operator's or device's.
void CheckIsFor(const Kernel& kernel, const OperatorDef& def);
// Bit i of masks[o]: output o may share memory with input i, by the configuration where one was
// chosen, and by the schema otherwise.
std::vector<uint64_t> InplaceMasks(const OpSchema& schema, const OperatorDef& def,
                                   const KernelConfig* config);
// Bit i: the node writes to input i.
uint64_t MutatedInputs(const OpSchema& schema, const OperatorDef& def);
// Called in a catch block: adds the node and the kernel to what making the operator has thrown.
[[noreturn]] OPKIT_COLD void RethrowFromConstructor(const Kernel& kernel, const OperatorDef& def);
// What a profile shows of a run: WorkOfRun::tell.
SpanWork TellWork(const WorkOfRun& work, const OperatorDef& def,
                  const std::vector<TensorInfo>& inputs, const std::vector<TensorInfo>& outputs);
// Error (kInvalidArgument) for a configuration that does not fit the node.
void CheckConfig(const Kernel& kernel, const OperatorDef& def, const KernelConfig& config);
// Functions of kernel_candidates.hpp, which programs need whose kernels propose configurations or
// have ranked backends: UseSelection fills them.
inline constexpr const char* kProposes = "a kernel that proposes configurations, or has a rank,";
inline constexpr const char* kRegisters = "opkit/op/registration.hpp";
OPKIT_IMAGE_LOCAL inline constinit Hook<std::string(const Kernel&, const OpSchema&,
                                                    const OperatorDef&, const Workspace&)>
    g_why_not_standard{kProposes, kRegisters};
// CreateSelected; stores whether all layouts of the configuration are the standard one.
OPKIT_IMAGE_LOCAL inline constinit Hook<std::unique_ptr<OperatorBase>(
    const OperatorDef&, Workspace*, std::span<const TensorInfo> inputs,
    std::span<const TensorInfo> outputs, bool converts, bool* is_standard)>
    g_create_selected{kProposes, kRegisters};
// The operator made by `kernel`, with its registration and in-place pairs. Errors get the node and
// the kernel as context; null where the creator returned it.
std::unique_ptr<OperatorBase> CreateWith(const Kernel& kernel, const OpSchema& schema,
                                         const OperatorDef& def, Workspace* ws,
                                         const KernelConfig* config);

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/impl/create_operator.ipp"
#endif

#endif  // OPKIT_OP_CREATE_OPERATOR_HPP_
