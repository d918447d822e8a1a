// BoundOperator: an operator in a workspace of its own, to whose inputs and outputs the caller
// binds memory before each run. A library runs its class operators so for its host
// (plugin/export/export_operators.hpp).
#ifndef OPKIT_OP_CALL_BOUND_OPERATOR_HPP_
#define OPKIT_OP_CALL_BOUND_OPERATOR_HPP_

#include "opkit/base/hook.hpp"
#include "opkit/op/kernel.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Functions and no virtual ones: g++ compiles every override that a program might reach by a
// virtual call.
struct BoundOperator {
  IntrusivePtr<RefCounted>
      bound;  // the workspace and the operator, first argument of the functions
  // The place of an input's or output's tensor; null where the node leaves it out. An output that
  // has an input's name shares that input's place.
  Tensor* (*input)(RefCounted& bound, size_t i) = nullptr;
  Tensor* (*output)(RefCounted& bound, size_t o) = nullptr;
  // The output that the run has made; null where it is no tensor.
  const Tensor* (*result)(RefCounted& bound, size_t o) = nullptr;
  // `issue`: returns when the work is issued. Errors: as OperatorBase::Run and SetScratch.
  void (*run)(RefCounted& bound, void* scratch, int64_t scratch_bytes, bool issue) = nullptr;
};

// Makes the operator of a kernel, in a configuration that it proposed or none. Errors: as
// CreateOperator. A library whose only operators are typed ones on the CPU does not need it:
// whatever registers another kernel fills it (UseOperatorCalls).
OPKIT_IMAGE_LOCAL inline constinit Hook<BoundOperator(const Kernel& kernel, const OperatorDef& def,
                                                      const KernelConfig* config)>
    g_bind_operator{"a kernel that is no typed operator's", "opkit/op/registration.hpp"};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_CALL_BOUND_OPERATOR_HPP_
