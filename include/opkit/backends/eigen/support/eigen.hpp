// Includes Eigen without its threads (the toolkit's pool calls it), and without the warnings of GCC
// 12 in its own AVX-512 intrinsics, which read undefined values on purpose. Every header of this
// backend includes Eigen through this one.
#ifndef OPKIT_BACKENDS_EIGEN_SUPPORT_EIGEN_HPP_
#define OPKIT_BACKENDS_EIGEN_SUPPORT_EIGEN_HPP_

#include "opkit/backends/eigen/backend.hpp"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#ifdef EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>
#else
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>
#undef EIGEN_DONT_PARALLELIZE
#endif
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#endif  // OPKIT_BACKENDS_EIGEN_SUPPORT_EIGEN_HPP_
