// Includes Eigen without its own threads, because the toolkit's pool runs it. Also turns off
// warnings of GCC 12 in GCC's AVX-512 intrinsics, which read undefined values on purpose. Every
// header of this backend includes Eigen through this header.
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

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_REGISTER_BACKEND_VERSION(kEigenBackend, [] {
  return StrCat(EIGEN_WORLD_VERSION, ".", EIGEN_MAJOR_VERSION, ".", EIGEN_MINOR_VERSION);
});

// Neighbouring floats as a vector for Eigen's array expressions.
using FloatArray = Eigen::Map<Eigen::ArrayXf>;
using ConstFloatArray = Eigen::Map<const Eigen::ArrayXf>;

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_BACKENDS_EIGEN_SUPPORT_EIGEN_HPP_
