// ResolvedCall: what a ResolvedOperator calls. A typed operator on the CPU is called directly
// (direct_call.hpp); everything else is an operator bound to a workspace (operator_call.hpp).
#ifndef OPKIT_OP_CALL_RESOLVED_CALL_HPP_
#define OPKIT_OP_CALL_RESOLVED_CALL_HPP_

#include <span>

#include "opkit/base/hook.hpp"
#include "opkit/base/unique_function.hpp"
#include "opkit/op/schema.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

class OperatorCall;

struct ResolvedCall {
  // Runs on as many inputs as the node has, into as many outputs, whose memory is reused where it
  // fits. `issue`: returns when the work is issued. On an Error the outputs are as they were. One
  // call at a time. A function and no virtual one: g++ compiles every override that a program might
  // reach by a virtual call.
  UniqueFunction<void(std::span<const Tensor> inputs, std::span<Tensor> outputs, bool issue)> run;
  OperatorCall* by_operator = nullptr;  // null: directly
};

// Makes the call of an operator. A program whose only operators are typed ones on the CPU does not
// need it: whatever registers another kernel fills it (UseOperatorCalls).
OPKIT_IMAGE_LOCAL inline constinit Hook<ResolvedCall(const OpSchema& schema,
                                                     const OperatorDef& def)>
    g_operator_call{"a kernel that is no typed operator's", "opkit/opkit.hpp"};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_CALL_RESOLVED_CALL_HPP_
