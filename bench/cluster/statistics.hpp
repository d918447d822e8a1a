// Median and Variation of measured times.
#ifndef OPKIT_BENCH_CLUSTER_STATISTICS_HPP_
#define OPKIT_BENCH_CLUSTER_STATISTICS_HPP_

#include <algorithm>
#include <cmath>
#include <vector>

namespace cluster_bench {

inline double Median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}
// Returns the standard deviation over the mean.
inline double Variation(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  const double mean = sum / static_cast<double>(values.size());
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1)) / mean;
}

}  // namespace cluster_bench

#endif  // OPKIT_BENCH_CLUSTER_STATISTICS_HPP_
