// Kernels of the "eigen" backend for elementwise operators, most of them on float32.
#ifndef OPKIT_BACKENDS_EIGEN_ELEMENTWISE_HPP_
#define OPKIT_BACKENDS_EIGEN_ELEMENTWISE_HPP_

#include "opkit/backends/eigen/elementwise_activation.hpp"
#include "opkit/backends/eigen/elementwise_arithmetic.hpp"
#include "opkit/backends/eigen/elementwise_cast.hpp"
#include "opkit/backends/eigen/elementwise_logic.hpp"
#include "opkit/backends/eigen/elementwise_unary.hpp"

#endif  // OPKIT_BACKENDS_EIGEN_ELEMENTWISE_HPP_
