// The reductions on CUDA that are norms, products or logarithms: ReduceL1, ReduceL2, ReduceLogSum,
// ReduceLogSumExp, ReduceProd and ReduceSumSquare. They are apart from those of reduce.hpp so that
// two processes can compile them.
#ifndef OPKIT_BACKENDS_CUDA_OPS_ROWS_REDUCE_NORM_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_ROWS_REDUCE_NORM_HPP_

#include "opkit/backends/cuda/ops/rows/reduction.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_CUDA_REDUCTION(ReduceL1, ReduceAsL1, FloatTypes);
OPKIT_CUDA_REDUCTION(ReduceL2, ReduceAsL2, FloatTypes);
OPKIT_CUDA_REDUCTION(ReduceLogSum, ReduceAsLogSum, FloatTypes);
OPKIT_CUDA_REDUCTION(ReduceLogSumExp, ReduceAsLogSumExp, FloatTypes);
OPKIT_CUDA_REDUCTION(ReduceProd, ReduceAsProd, FloatTypes);
OPKIT_CUDA_REDUCTION(ReduceSumSquare, ReduceAsSumSquare, FloatTypes);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_ROWS_REDUCE_NORM_HPP_
