// ResolvedCall: the call behind a ResolvedOperator. A typed operator on the CPU is called directly
// (direct_call.hpp); any other operator is bound to a workspace (operator_call.hpp).
#ifndef OPKIT_OP_CALL_RESOLVED_CALL_HPP_
#define OPKIT_OP_CALL_RESOLVED_CALL_HPP_

#include <span>

#include "opkit/base/hook.hpp"
#include "opkit/base/unique_function.hpp"
#include "opkit/op/schema.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

class OperatorCall;

// A call that is prepared for repeated use.
struct ResolvedCall {
  // Computes all outputs of the node from all its inputs, and reuses the outputs' memory if it
  // fits. With `issue` returns once the work is issued. On an Error the outputs are unchanged. Only
  // one call at a time is allowed. A function object instead of a virtual function: g++ compiles
  // every override that a program might reach by a virtual call.
  UniqueFunction<void(std::span<const Tensor> inputs, std::span<Tensor> outputs, bool issue)> run;
  OperatorCall* by_operator = nullptr;  // null for a direct call
};

// Makes the call of an operator. A program with only typed CPU operators does not need this hook.
// The registration of any other kernel fills it (UseOperatorCalls).
OPKIT_IMAGE_LOCAL inline constinit Hook<ResolvedCall(const OpSchema& schema,
                                                     const OperatorDef& def)>
    g_operator_call{"a kernel that is no typed operator's", "opkit/opkit.hpp"};

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_CALL_RESOLVED_CALL_HPP_
