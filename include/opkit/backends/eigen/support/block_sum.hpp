// Sums of floats that lie side by side, for the "eigen" backend.
#ifndef OPKIT_BACKENDS_EIGEN_SUPPORT_BLOCK_SUM_HPP_
#define OPKIT_BACKENDS_EIGEN_SUPPORT_BLOCK_SUM_HPP_

#include <cmath>

#include "opkit/backends/eigen/support/eigen.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// The sum of f(some of them as an Eigen array) over `count` floats, f element by element. Blocks
// are summed in float, and go on in double, so that a long sum loses nothing; a block that
// overflows is done in double. The order is that of the elements alone: Eigen's own sums begin
// where memory is aligned, and the same numbers at two addresses would have two sums.
template <class F>
double SumInBlocks(const float* x, int64_t count, F f) {
  constexpr int64_t kFloats = 2048, kLanes = 32;
  using Lanes = Eigen::Array<float, kLanes, 1>;
  double sum = 0;
  for (int64_t at = 0; at < count; at += kFloats) {
    const int64_t size = (std::min)(kFloats, count - at);
    Lanes lanes = Lanes::Zero();
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) lanes += f(Eigen::Map<const Lanes>(x + at + i));
    for (int64_t lane = 0; i < size; ++i, ++lane)
      lanes[lane] += f(Eigen::Map<const Eigen::Array<float, 1, 1>>(x + at + i))(0);
    const float part = lanes.sum();
    if (std::isfinite(part)) {
      sum += static_cast<double>(part);
    } else {
      sum += f(Eigen::Map<const Eigen::ArrayXf>(x + at, size).template cast<double>()).sum();
    }
  }
  return sum;
}
inline double SumInBlocks(const float* x, int64_t count) {
  return SumInBlocks(x, count, [](const auto& some) { return some + 0; });
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_BACKENDS_EIGEN_SUPPORT_BLOCK_SUM_HPP_
