// All kernels of the standard operators on CUDA that need no library. A header-only program includes
// it in one .cu file, and the headers of libraries/ by their names. The operators' schemas are not
// in these headers: the program also links opkit::ops, or includes opkit/ops/all.hpp in a .cc file.
#ifndef OPKIT_BACKENDS_CUDA_OPERATORS_HPP_
#define OPKIT_BACKENDS_CUDA_OPERATORS_HPP_

#include "opkit/backends/cuda/ops/conv.hpp"
#include "opkit/backends/cuda/ops/elementwise.hpp"
#include "opkit/backends/cuda/ops/gather.hpp"
#include "opkit/backends/cuda/ops/generators.hpp"
#include "opkit/backends/cuda/ops/loss.hpp"
#include "opkit/backends/cuda/ops/matmul.hpp"
#include "opkit/backends/cuda/ops/normalization.hpp"
#include "opkit/backends/cuda/ops/order.hpp"
#include "opkit/backends/cuda/ops/pad.hpp"
#include "opkit/backends/cuda/ops/pool.hpp"
#include "opkit/backends/cuda/ops/random.hpp"
#include "opkit/backends/cuda/ops/rearrange.hpp"
#include "opkit/backends/cuda/ops/reduce.hpp"
#include "opkit/backends/cuda/ops/reduce_norm.hpp"
#include "opkit/backends/cuda/ops/reduction.hpp"
#include "opkit/backends/cuda/ops/reshape.hpp"
#include "opkit/backends/cuda/ops/resize.hpp"
#include "opkit/backends/cuda/ops/rows.hpp"
#include "opkit/backends/cuda/ops/scatter.hpp"

#endif  // OPKIT_BACKENDS_CUDA_OPERATORS_HPP_
