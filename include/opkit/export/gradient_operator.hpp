// The gradient of an exported operator as an operator of its own, Axpy_grad, so that a host calls
// it like any other. The hosts' macros export it beside the operator itself, and the Python side of
// `opkit export` makes it the derivative in JAX and PyTorch.
#ifndef OPKIT_EXPORT_GRADIENT_OPERATOR_HPP_
#define OPKIT_EXPORT_GRADIENT_OPERATOR_HPP_

#include "opkit/op/op_registry.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the reason why the operator has no Axpy_grad; empty if it has one. It has one if its
// gradient is registered (REGISTER_GRADIENT, setBackward, NO_GRADIENT), it keeps no state, its runs
// do not differ, and its number of outputs is fixed.
OPKIT_IMAGE_LOCAL std::string WhyNoGradientOperator(const OpSchema& schema);

// Returns the schema of Axpy_grad; the first call registers the operator. Its inputs are the
// gradients of the outputs of Axpy, the outputs, and the inputs; its attributes are those of Axpy.
// It has an output for each input of Axpy, with the dtype and shape of the input: the gradient,
// zeros if no gradient flows to the input, or a float32[0] for an input that is left out. The
// gradient of an output that is no floating-point tensor is not read. Its kernel, for the CPU, runs
// the operators of the gradient maker one after the other. Throws kNotFound or kUnsupported with
// the sentence of WhyNoGradientOperator; kAlreadyExists if Axpy_grad is another operator.
OPKIT_IMAGE_LOCAL const OpSchema& GradientOperatorSchema(const OpSchema& of);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/export/impl/gradient_operator.ipp"
#endif

#endif  // OPKIT_EXPORT_GRADIENT_OPERATOR_HPP_
