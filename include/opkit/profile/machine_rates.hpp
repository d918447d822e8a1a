// MachineRates: how fast a machine computes, and moves bytes to and from each level of its memory.
// MachinePeak (machine_peak.hpp) measures it. PeakShare says how near a piece of work comes to it.
#ifndef OPKIT_PROFILE_MACHINE_RATES_HPP_
#define OPKIT_PROFILE_MACHINE_RATES_HPP_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The rate of a cache.
struct CacheCeiling {
  std::string name;             // "L2"
  double capacity = 0;          // bytes that the caches of all threads together hold
  double bytes_per_second = 0;  // to and from it
};

// The share of the machine's peak that a piece of work reaches.
struct PeakShare {
  double share = 0;     // 1: as fast as the ceiling; 0: unknown
  std::string ceiling;  // what limits the work: "FMA" (multiply-adds), "L2", "memory"; or empty
};
// "71 % of L2", with the reasons that are possible if it is above 100 %; "" if it is unknown.
std::string ToString(const PeakShare& share);

// Rates that one or more threads reach together.
struct MachineRates {
  double flops = 0;                       // float32 operations per second; a multiply-add is two
  double bytes = 0;                       // bytes to and from memory per second
  std::vector<CacheCeiling> caches = {};  // from the smallest on; empty: unknown
  int threads = 1;
  // True if the machine was busy with other work while it was measured: see MachinePeak.
  bool disturbed = false;

  // The time that a piece of work needs at these rates.
  struct Limit {
    double seconds = 0;  // 0: a rate is unknown, NaN or not above 0
    size_t ceiling = 0;  // 0: FMA; i + 1: caches[i]; above: memory
  };
  // The time of `its_flops` operations, or of `its_bytes` bytes that flow from the smallest level
  // that holds `data_bytes`, the data that the work touches; the longer one of the two (Williams,
  // Waterman, Patterson: Roofline, 2009). Data that comes from elsewhere, as in a model's run, only
  // takes longer.
  Limit LimitOf(double its_flops, double its_bytes, double data_bytes) const;
  std::string CeilingName(size_t ceiling) const;
  // Compares the limit with the time `ns` that the work took.
  PeakShare ShareOf(double its_flops, double its_bytes, double data_bytes, int64_t ns) const;
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/machine_rates.ipp"
#endif

#endif  // OPKIT_PROFILE_MACHINE_RATES_HPP_
