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
  AbiQuery query(context.def(), context.inputs(), context.outputs());
  AcceptAnswer(g_host->infer(&query.node.node(), query.inputs.data(), query.outputs.data()));
  RefineBy(context, query.inputs, query.outputs,
           [](auto& values, size_t i, auto) { return InfoOfAbi(values[i]); });
}

OPKIT_IMAGE_LOCAL inline const bool kInfersOnHost =
    g_host_has_operator.Fill(&HostHasOperator) && g_infer_on_host.Fill(&InferOnHost);

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_BOUNDARY_HOST_HOST_INFERENCE_HPP_
