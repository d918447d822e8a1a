// BoundOperator: an operator in its own workspace. The caller binds memory to its inputs and
// outputs before each run. A library runs its class operators this way for its host
// (plugin/export/export_operators.hpp).
#ifndef OPKIT_OP_CALL_BOUND_OPERATOR_HPP_
#define OPKIT_OP_CALL_BOUND_OPERATOR_HPP_

#include "opkit/base/hook.hpp"
#include "opkit/op/kernel.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// An operator, its workspace, and the functions that use them. Function pointers instead of virtual
// functions: g++ compiles every override that a program might reach by a virtual call.
struct BoundOperator {
  IntrusivePtr<RefCounted> bound;  // workspace and operator; first argument of the functions
  // Returns the tensor object of an input or output, to be set before a run; null if the node
  // leaves it out. An output with the name of an input shares the input's tensor object.
  Tensor* (*input)(RefCounted& bound, size_t i) = nullptr;
  Tensor* (*output)(RefCounted& bound, size_t o) = nullptr;
  // Returns the output of the run; null if it is no tensor.
  const Tensor* (*result)(RefCounted& bound, size_t o) = nullptr;
  // Runs the operator; with `issue` returns once the work is issued. Throws the errors of
  // OperatorBase::Run and SetScratch.
  void (*run)(RefCounted& bound, void* scratch, int64_t scratch_bytes, bool issue) = nullptr;
};

// Makes the operator of a kernel, in a configuration that the kernel proposed or in none. Throws
// the errors of CreateOperator. A library with only typed CPU operators does not need this hook.
// The registration of any other kernel fills it (UseOperatorCalls).
OPKIT_IMAGE_LOCAL inline constinit Hook<BoundOperator(const Kernel& kernel, const OperatorDef& def,
                                                      const KernelConfig* config)>
    g_bind_operator{"a kernel that is no typed operator's", "opkit/op/registration.hpp"};

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_CALL_BOUND_OPERATOR_HPP_
