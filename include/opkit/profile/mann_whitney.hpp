// MannWhitneyTest: whether one sample tends to be larger than another, whatever their
// distributions.
#ifndef OPKIT_PROFILE_MANN_WHITNEY_HPP_
#define OPKIT_PROFILE_MANN_WHITNEY_HPP_

#include <cstdint>
#include <vector>

#include "opkit/config.hpp"

namespace opkit::inline OPKIT_ABI {

struct MannWhitney {
  // How many of the pairs have the larger number in `b`; a pair of equal ones counts a half.
  double u = 0;
  // The probability of a U at least as far from its middle, were both samples of one distribution:
  // two-sided; 1 where a sample is empty or all numbers are equal.
  double p = 1;
};

// Exact for up to 50 numbers without equal ones, else by the normal approximation with corrections
// for ties and continuity (Mann and Whitney 1947; Siegel and Castellan 1988, section 6.4). Error
// (kInvalidArgument) for a NaN.
MannWhitney MannWhitneyTest(const std::vector<double>& a, const std::vector<double>& b);

// The smallest p that samples of these sizes can have: 2 / C(a + b, a).
double SmallestMannWhitneyP(int64_t a, int64_t b);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/mann_whitney.ipp"
#endif

#endif  // OPKIT_PROFILE_MANN_WHITNEY_HPP_
