// MannWhitneyTest: tests whether one sample tends to be larger than another, for any distributions.
// CompareTimes (profile_diff.hpp) uses it.
#ifndef OPKIT_PROFILE_MANN_WHITNEY_HPP_
#define OPKIT_PROFILE_MANN_WHITNEY_HPP_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The result of MannWhitneyTest.
struct MannWhitney {
  // The number of pairs (x of `a`, y of `b`) with y > x. A pair of equal numbers counts a half.
  double u = 0;
  // Probability of a U that lies at least as far from its mean, on either side, if both samples
  // have the same distribution. 1 if a sample is empty or all numbers are equal.
  double p = 1;
};

// Computes U and p: exactly for up to 50 numbers without ties, else by the normal approximation
// with corrections for ties and continuity (Mann and Whitney 1947; Siegel and Castellan 1988,
// section 6.4). Throws kInvalidArgument for a NaN.
MannWhitney MannWhitneyTest(const std::vector<double>& a, const std::vector<double>& b);

// Returns the smallest p that samples of these sizes can have: 2 / C(a + b, a), at most 1.
double SmallestMannWhitneyP(int64_t a, int64_t b);

namespace detail {

// Corrects the member p of several comparisons for their number: multiplies each p by the number of
// rows whose p is not smaller, and raises it to the corrected p before it (Holm 1979). At most 1.
template <class Row>
void CorrectForComparisons(std::vector<Row*> rows) {
  std::sort(rows.begin(), rows.end(), [](const Row* a, const Row* b) { return a->p < b->p; });
  double least = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    least = (std::max)(least, rows[i]->p * static_cast<double>(rows.size() - i));
    rows[i]->p = (std::min)(least, 1.0);
  }
}

}  // namespace detail

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/mann_whitney.ipp"
#endif

#endif  // OPKIT_PROFILE_MANN_WHITNEY_HPP_
