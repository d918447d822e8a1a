// Operators on CUDA that compute each element of the output from one element of each broadcast
// input. The functions of one element are those of the CPU's reference kernels.
#ifndef OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_HPP_

#include "opkit/backends/cuda/ops/elementwise/arithmetic.hpp"
#include "opkit/backends/cuda/ops/elementwise/cast.hpp"
#include "opkit/backends/cuda/ops/elementwise/chain.hpp"
#include "opkit/backends/cuda/ops/elementwise/logic.hpp"
#include "opkit/backends/cuda/ops/elementwise/scalar_function.hpp"
#include "opkit/backends/cuda/ops/elementwise/unary.hpp"

#endif  // OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_HPP_
