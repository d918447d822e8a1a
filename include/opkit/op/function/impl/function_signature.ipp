// The answers of functions as an OpStatus, and StatefulOp's own functions.
#ifndef OPKIT_OP_FUNCTION_IMPL_FUNCTION_SIGNATURE_IPP_
#define OPKIT_OP_FUNCTION_IMPL_FUNCTION_SIGNATURE_IPP_

#include "opkit/op/function/function_signature.hpp"

namespace opkit::inline OPKIT_ABI {

OPKIT_INLINE OpStatus detail::StatusOfAnswer(int answer) {
  if (answer == SUCCESS || answer == FAIL) return static_cast<ReturnValue>(answer);
  return OpStatus::Failure("it returned ", answer, "; 1 is SUCCESS and 0 is FAIL");
}

OPKIT_INLINE OpStatus StatefulOp::Run(FunctionPass pass, std::span<const OpTensor> inputs,
                                      std::span<OpTensor> outputs, OpResource& resource) {
  std::vector<OpTensor> ins(inputs.begin(), inputs.end()), outs(outputs.begin(), outputs.end());
  return detail::StatusOfAnswer(pass == FunctionPass::kForward
                                    ? Forward(std::move(ins), std::move(outs), resource)
                                    : Backward(std::move(ins), std::move(outs), resource));
}
OPKIT_INLINE int StatefulOp::Forward(std::vector<OpTensor>, std::vector<OpTensor>,
                                     const OpResource&) {
  OPKIT_ERROR_MSG << "its StatefulOp overrides neither Forward nor Run";
  return FAIL;
}
OPKIT_INLINE int StatefulOp::Backward(std::vector<OpTensor>, std::vector<OpTensor>,
                                      const OpResource&) {
  OPKIT_ERROR_MSG << "its StatefulOp does not override Backward";
  return FAIL;
}

}  // namespace opkit

#endif  // OPKIT_OP_FUNCTION_IMPL_FUNCTION_SIGNATURE_IPP_
