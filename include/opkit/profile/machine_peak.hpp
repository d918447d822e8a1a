// MachinePeak: measures the highest rates of the processor, with which the rates of operators are
// compared.
#ifndef OPKIT_PROFILE_MACHINE_PEAK_HPP_
#define OPKIT_PROFILE_MACHINE_PEAK_HPP_

#include "opkit/profile/machine_rates.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Measures the rates of `threads` threads together: multiply-adds in registers, and a triad a = b +
// s * c. The vectors are the widest of the processor, the arrays larger than its caches. Takes a
// quarter of a second, and 96 MiB for each thread. Throws kInvalidArgument for less than one
// thread.
MachineRates MachinePeak(int threads = 1);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/machine_peak.ipp"
#endif

#endif  // OPKIT_PROFILE_MACHINE_PEAK_HPP_
