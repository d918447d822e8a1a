// MachinePeak: measures the highest rates of the processor and of each level of its memory, with
// which the rates of operators are compared.
#ifndef OPKIT_PROFILE_MACHINE_PEAK_HPP_
#define OPKIT_PROFILE_MACHINE_PEAK_HPP_

#include "opkit/profile/machine_rates.hpp"
#include "opkit/profile/timing/interleaved_times.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct MachinePeakOptions {
  double seconds = 0.25;         // for all rates together; each takes at least three samples
  double most_bytes = 1 << 30;   // of the arrays together
  TimingClock* clock = nullptr;  // null: that of the machine. Every thread calls it.
};

// Measures the rates of `threads` threads together, in vectors of the processor's greatest width:
// multiply-adds in registers, and for each cache and for memory the faster of two loops over arrays
// that fill half of the level: a triad a = b + s * c (McCalpin: STREAM, 1995) and a sum that only
// reads. A rate is the best of its samples. `disturbed` is true if the machine was busy: more than
// half of the samples met what TimeInterleaved leaves out, a processor taken away or slowed down,
// or had a thread that got its processor late, as happens with more threads than processors.
//
// The threads are its own: each does a part of every sample at the same time, while a pool may give
// two parts to one thread. The arrays take 3 times the last cache, or 24 MiB for each thread if
// that is more. Throws kInvalidArgument for less than one thread, or for `seconds` that are not
// above 0.
MachineRates MachinePeak(int threads = 1, const MachinePeakOptions& options = {});

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/machine_peak.ipp"
#endif

#endif  // OPKIT_PROFILE_MACHINE_PEAK_HPP_
