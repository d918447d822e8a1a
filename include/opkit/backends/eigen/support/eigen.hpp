// Eigen, without threads of its own (those of the toolkit's pool call it), and without the warnings
// that GCC 12 gives in its own AVX-512 intrinsics, which read what they leave undefined on purpose.
// Every header of this folder includes Eigen through it.
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
