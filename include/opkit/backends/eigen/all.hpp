// All kernels of the "eigen" backend and the standard operators. Programs that compile them
// themselves include this header in one translation unit; with CMake, link opkit::ops and
// opkit::eigen instead.
#ifndef OPKIT_BACKENDS_EIGEN_ALL_HPP_
#define OPKIT_BACKENDS_EIGEN_ALL_HPP_

#include "opkit/backends/eigen/attention.hpp"
#include "opkit/backends/eigen/backend.hpp"
#include "opkit/backends/eigen/conv.hpp"
#include "opkit/backends/eigen/conv_transpose.hpp"
#include "opkit/backends/eigen/elementwise.hpp"
#include "opkit/backends/eigen/elementwise_activation.hpp"
#include "opkit/backends/eigen/elementwise_arithmetic.hpp"
#include "opkit/backends/eigen/elementwise_cast.hpp"
#include "opkit/backends/eigen/elementwise_logic.hpp"
#include "opkit/backends/eigen/elementwise_unary.hpp"
#include "opkit/backends/eigen/fourier.hpp"
#include "opkit/backends/eigen/layer_normalization.hpp"
#include "opkit/backends/eigen/matmul.hpp"
#include "opkit/backends/eigen/normalization.hpp"
#include "opkit/backends/eigen/pool.hpp"
#include "opkit/backends/eigen/recurrent.hpp"
#include "opkit/backends/eigen/reduce.hpp"
#include "opkit/backends/eigen/softmax.hpp"
#include "opkit/backends/eigen/support/conv_kernel.hpp"
#include "opkit/backends/eigen/support/eigen.hpp"
#include "opkit/backends/eigen/support/elementwise_kernel.hpp"
#include "opkit/backends/eigen/support/elementwise_math.hpp"
#include "opkit/backends/eigen/support/elementwise_vectors.hpp"
#include "opkit/backends/eigen/support/gemm.hpp"
#include "opkit/backends/eigen/support/lanes.hpp"
#include "opkit/backends/eigen/support/softmax_exp.hpp"
#include "opkit/backends/eigen/support/strip.hpp"
#include "opkit/backends/eigen/support/task_plan.hpp"
#include "opkit/backends/eigen/support/tile.hpp"
#include "opkit/backends/eigen/transpose.hpp"
#include "opkit/ops/all.hpp"

#endif  // OPKIT_BACKENDS_EIGEN_ALL_HPP_
