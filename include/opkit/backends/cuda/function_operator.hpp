// Enables function operators on CUDA: with this header setForward(f, "gpu") can run. A function is
// called when its work is to be issued; it issues the work on resource.stream(), a cudaStream_t.
#ifndef OPKIT_BACKENDS_CUDA_FUNCTION_OPERATOR_HPP_
#define OPKIT_BACKENDS_CUDA_FUNCTION_OPERATOR_HPP_

#include "opkit/backends/cuda/context.hpp"
#include "opkit/op/function/function_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {
[[maybe_unused]] inline const bool kCUDARunsFunctions = EnableFunctionOperators<CUDAContext>();
}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_CUDA_FUNCTION_OPERATOR_HPP_
