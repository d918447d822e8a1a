// MachineRates: how fast a machine computes and moves bytes. MachinePeak (machine_peak.hpp)
// measures it.
#ifndef OPKIT_PROFILE_MACHINE_RATES_HPP_
#define OPKIT_PROFILE_MACHINE_RATES_HPP_

#include <cstdint>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Rates that one or more threads reach together.
struct MachineRates {
  double flops = 0;  // float32 operations per second; a multiply-add is two
  double bytes = 0;  // bytes to and from memory per second

  // Returns the share of this machine's peak that `its_flops` operations and `its_bytes` bytes in
  // `ns` reach: the machine's time for the operations or the bytes (the longer one), over `ns`
  // (Williams, Waterman, Patterson: Roofline, 2009). 0 if a rate is unknown: NaN or not above 0.
  double ShareOf(double its_flops, double its_bytes, int64_t ns) const {
    if (!(flops > 0) || !(bytes > 0) || ns <= 0) return 0;
    const double compute = its_flops / flops, traffic = its_bytes / bytes;
    return (compute > traffic ? compute : traffic) / (static_cast<double>(ns) * 1e-9);
  }
};

}}  // namespace opkit

#endif  // OPKIT_PROFILE_MACHINE_RATES_HPP_
