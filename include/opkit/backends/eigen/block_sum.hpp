// Sums of floats that lie side by side, for the "eigen" backend.
#ifndef OPKIT_BACKENDS_EIGEN_BLOCK_SUM_HPP_
#define OPKIT_BACKENDS_EIGEN_BLOCK_SUM_HPP_

#include <cmath>

#include "opkit/backends/eigen/eigen.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// The sum of f(a block of them as an Eigen array) over `count` floats. Blocks are summed in float,
// and go on in double, so that a long sum loses nothing; a block that overflows is done in double.
template <class F>
double SumInBlocks(const float* x, int64_t count, F f) {
  constexpr int64_t kFloats = 2048;
  double sum = 0;
  for (int64_t at = 0; at < count; at += kFloats) {
    const Eigen::Map<const Eigen::ArrayXf> block(x + at, (std::min)(kFloats, count - at));
    const float part = f(block);
    sum += std::isfinite(part) ? static_cast<double>(part) : f(block.template cast<double>());
  }
  return sum;
}
inline double SumInBlocks(const float* x, int64_t count) {
  return SumInBlocks(x, count, [](const auto& block) { return block.sum(); });
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_BACKENDS_EIGEN_BLOCK_SUM_HPP_
