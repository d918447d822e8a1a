// SumInBlocks: sums of neighbouring floats, for the normalizations and pools of the "eigen"
// backend.
#ifndef OPKIT_BACKENDS_EIGEN_SUPPORT_BLOCK_SUM_HPP_
#define OPKIT_BACKENDS_EIGEN_SUPPORT_BLOCK_SUM_HPP_

#include <cmath>

#include "opkit/backends/eigen/support/eigen.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the sum of f over `count` floats; f maps an Eigen array of some of them element by
// element. Blocks are summed in float and their sums in double, so that a long sum stays precise. A
// block that overflows is summed in double. The order of additions does not depend on the address;
// Eigen's own sums begin where memory is aligned.
template <class F>
double SumInBlocks(const float* x, int64_t count, F f) {
  constexpr int64_t kFloats = 2048, kWidth = 32;
  using Part = Eigen::Array<float, kWidth, 1>;
  double sum = 0;
  for (int64_t at = 0; at < count; at += kFloats) {
    const int64_t size = (std::min)(kFloats, count - at);
    Part lanes = Part::Zero();
    int64_t i = 0;
    for (; i + kWidth <= size; i += kWidth) lanes += f(Eigen::Map<const Part>(x + at + i));
    for (int64_t lane = 0; i < size; ++i, ++lane)
      lanes[lane] += f(Eigen::Map<const Eigen::Array<float, 1, 1>>(x + at + i))(0);
    const float part = lanes.sum();
    if (std::isfinite(part))
      sum += static_cast<double>(part);
    else
      sum += f(ConstFloatArray(x + at, size).template cast<double>()).sum();
  }
  return sum;
}
inline double SumInBlocks(const float* x, int64_t count) {
  return SumInBlocks(x, count, [](const auto& some) { return some + 0; });
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_EIGEN_SUPPORT_BLOCK_SUM_HPP_
