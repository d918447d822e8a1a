// MachinePeak: what the processor can do at most, which the rates of operators are read against.
#ifndef OPKIT_PROFILE_MACHINE_PEAK_HPP_
#define OPKIT_PROFILE_MACHINE_PEAK_HPP_

#include "opkit/profile/machine_rates.hpp"

namespace opkit::inline OPKIT_ABI {

// Measured: multiply-adds in registers, of the widest vectors that the processor has, and a triad
// a = b + s * c over more than its caches hold. Takes a quarter of a second and 96 MiB. Error
// (kInvalidArgument) for less than one thread.
MachineRates MachinePeak(int threads = 1);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/machine_peak.ipp"
#endif

#endif  // OPKIT_PROFILE_MACHINE_PEAK_HPP_
