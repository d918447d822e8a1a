// All kernels of the standard operators on CUDA that need no library. A header-only program
// includes it in one .cu file, and the headers of libraries/ by their names. The operators' schemas
// are not in these headers: the program also links opkit::ops, or includes opkit/ops/all.hpp in a
// .cc file.
#ifndef OPKIT_BACKENDS_CUDA_OPERATORS_HPP_
#define OPKIT_BACKENDS_CUDA_OPERATORS_HPP_

#include "opkit/backends/cuda/ops/conv.hpp"
#include "opkit/backends/cuda/ops/elementwise.hpp"
#include "opkit/backends/cuda/ops/matmul.hpp"
#include "opkit/backends/cuda/ops/moving/gather.hpp"
#include "opkit/backends/cuda/ops/moving/generators.hpp"
#include "opkit/backends/cuda/ops/moving/pad.hpp"
#include "opkit/backends/cuda/ops/moving/rearrange.hpp"
#include "opkit/backends/cuda/ops/moving/reshape.hpp"
#include "opkit/backends/cuda/ops/moving/resize.hpp"
#include "opkit/backends/cuda/ops/moving/scatter.hpp"
#include "opkit/backends/cuda/ops/quantized/integer_products.hpp"
#include "opkit/backends/cuda/ops/quantized/quantize_linear.hpp"
#include "opkit/backends/cuda/ops/random.hpp"
#include "opkit/backends/cuda/ops/rotary_embedding.hpp"
#include "opkit/backends/cuda/ops/rows/cumulative.hpp"
#include "opkit/backends/cuda/ops/rows/loss.hpp"
#include "opkit/backends/cuda/ops/rows/normalization.hpp"
#include "opkit/backends/cuda/ops/rows/order.hpp"
#include "opkit/backends/cuda/ops/rows/pool.hpp"
#include "opkit/backends/cuda/ops/rows/reduce.hpp"
#include "opkit/backends/cuda/ops/rows/reduce_norm.hpp"
#include "opkit/backends/cuda/ops/rows/rows.hpp"

#endif  // OPKIT_BACKENDS_CUDA_OPERATORS_HPP_
