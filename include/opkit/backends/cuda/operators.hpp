// All kernels of the standard operators on CUDA that need no library. A header-only program includes
// it in one .cu file, and the headers of libraries/ by their names.
#ifndef OPKIT_BACKENDS_CUDA_OPERATORS_HPP_
#define OPKIT_BACKENDS_CUDA_OPERATORS_HPP_

#include "opkit/backends/cuda/ops/conv.hpp"
#include "opkit/backends/cuda/ops/elementwise.hpp"
#include "opkit/backends/cuda/ops/matmul.hpp"
#include "opkit/backends/cuda/ops/random.hpp"

#endif  // OPKIT_BACKENDS_CUDA_OPERATORS_HPP_
