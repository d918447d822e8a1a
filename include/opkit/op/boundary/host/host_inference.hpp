// InferOnHost: a library's inference by the operators of the program that loaded it. Only
// definitions include this header.
#ifndef OPKIT_OP_BOUNDARY_HOST_HOST_INFERENCE_HPP_
#define OPKIT_OP_BOUNDARY_HOST_HOST_INFERENCE_HPP_

#include "opkit/op/boundary/convert/abi_node.hpp"
#include "opkit/op/function/op_resource.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_IMAGE_LOCAL inline bool HostHasOperator(const std::string& op) {
  return IsLoadedLibrary() && OPKIT_ABI_HAS(g_host, infer) && g_host->has_operator(op.c_str()) != 0;
}
// Infers the node's dtypes and shapes by calling the operator of the program that loaded this
// library. Throws the errors of that operator; kNotFound if there is none.
OPKIT_IMAGE_LOCAL inline void InferOnHost(InferenceContext& context) {
  const AbiNode node(context.def());
  std::vector<std::string> symbols;
  AbiValues inputs(context.inputs(), symbols), outputs(context.outputs(), symbols);
  inputs.SetInputs(context.def(), context.inputs());
  if (const opkit_status status = g_host->infer(&node.node(), inputs.data(), outputs.data());
      status != OPKIT_OK)
    Throw(CodeOfStatus(status), g_host->failure_text());
  for (int i = 0; i < context.num_inputs(); ++i)
    if (context.HasInput(i)) {
      const TensorInfo info = InfoOfAbi(inputs[Index(i)]);
      context.SetInput(i, info.dtype, info.shape);
    }
  for (int o = 0; o < context.num_outputs(); ++o) {
    const TensorInfo info = InfoOfAbi(outputs[Index(o)]);
    context.SetOutput(o, info.dtype, info.shape);
  }
}
OPKIT_IMAGE_LOCAL inline const bool kInfersOnHost =
    g_host_has_operator.Fill(&HostHasOperator) && g_infer_on_host.Fill(&InferOnHost);

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_OP_BOUNDARY_HOST_HOST_INFERENCE_HPP_
