// MannWhitneyTest: tests whether one sample tends to be larger than another, for any distributions.
// CompareTimes (profile_diff.hpp) uses it.
#ifndef OPKIT_PROFILE_MANN_WHITNEY_HPP_
#define OPKIT_PROFILE_MANN_WHITNEY_HPP_

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

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/mann_whitney.ipp"
#endif

#endif  // OPKIT_PROFILE_MANN_WHITNEY_HPP_
