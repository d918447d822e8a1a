// Computes ranks, and the distribution of U.
#ifndef OPKIT_PROFILE_IMPL_MANN_WHITNEY_IPP_
#define OPKIT_PROFILE_IMPL_MANN_WHITNEY_IPP_

#include <algorithm>
#include <cmath>

#include "opkit/base/error.hpp"
#include "opkit/profile/mann_whitney.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the probability that U is at most `limit` if all orders of a + b numbers are equally
// likely. The numbers of orders by U are the coefficients of the Gaussian binomial: the product
// over i from 1 to a of (1 - x^(b + i)) / (1 - x^i). For a + b <= 50 they and their sum are exact
// in a double.
inline double ProbabilityOfU(size_t a, size_t b, double limit) {
  std::vector<double> counts(a * b + 1);
  counts[0] = 1;
  double all = 1;
  for (size_t i = 1; i <= a; ++i) {
    for (size_t u = counts.size(); u-- > b + i;) counts[u] -= counts[u - b - i];
    for (size_t u = i; u < counts.size(); ++u) counts[u] += counts[u - i];
    all = all * static_cast<double>(b + i) / static_cast<double>(i);
  }
  double sum = 0;
  for (size_t u = 0; u < counts.size() && static_cast<double>(u) <= limit; ++u) sum += counts[u];
  return sum / all;
}

}  // namespace detail

OPKIT_INLINE MannWhitney MannWhitneyTest(const std::vector<double>& a,
                                         const std::vector<double>& b) {
  MannWhitney out;
  if (a.empty() || b.empty()) return out;
  struct Item {
    double value;
    bool of_b;
  };
  std::vector<Item> items;
  items.reserve(a.size() + b.size());
  for (double value : a) items.push_back({value, false});
  for (double value : b) items.push_back({value, true});
  for (const Item& item : items)
    if (std::isnan(item.value))
      Throw(ErrorCode::kInvalidArgument, "a sample contains NaN, which has no rank");
  std::sort(items.begin(), items.end(),
            [](const Item& x, const Item& y) { return x.value < y.value; });
  double ties = 0, a_before = 0;
  for (size_t first = 0, end = 0; first < items.size(); first = end) {
    double of_a = 0, of_b = 0;
    for (end = first; end < items.size() && items[end].value == items[first].value; ++end)
      ++(items[end].of_b ? of_b : of_a);
    out.u += of_b * (a_before + of_a / 2);
    a_before += of_a;
    const double equal = of_a + of_b;
    ties += equal * equal * equal - equal;
  }
  const auto m = static_cast<double>(a.size()), n = static_cast<double>(b.size()), all = m + n;
  const double distance = std::abs(out.u - m * n / 2);
  if (ties == 0 && all <= 50) {
    out.p = 2 * detail::ProbabilityOfU(a.size(), b.size(), m * n / 2 - distance);
  } else {
    const double variance = m * n / 12 * (all + 1 - ties / (all * (all - 1)));
    if (variance > 0) out.p = std::erfc((std::max)(distance - 0.5, 0.0) / std::sqrt(2 * variance));
  }
  out.p = (std::min)(out.p, 1.0);
  return out;
}

OPKIT_INLINE double SmallestMannWhitneyP(int64_t a, int64_t b) {
  double p = 2;
  for (int64_t i = 1; i <= (std::min)(a, b); ++i)
    p *= static_cast<double>(i) / static_cast<double>((std::max)(a, b) + i);
  return (std::min)(p, 1.0);
}

}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_MANN_WHITNEY_IPP_
