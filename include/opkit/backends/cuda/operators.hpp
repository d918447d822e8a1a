// All kernels of the standard operators on CUDA. A header-only program includes it in one .cu file.
#ifndef OPKIT_BACKENDS_CUDA_OPERATORS_HPP_
#define OPKIT_BACKENDS_CUDA_OPERATORS_HPP_

#include "opkit/backends/cuda/ops/elementwise.hpp"
#include "opkit/backends/cuda/ops/random.hpp"

#endif  // OPKIT_BACKENDS_CUDA_OPERATORS_HPP_
