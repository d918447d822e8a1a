// Definitions of MachineRates.
#ifndef OPKIT_PROFILE_IMPL_MACHINE_RATES_IPP_
#define OPKIT_PROFILE_IMPL_MACHINE_RATES_IPP_

#include <cstdio>

#include "opkit/profile/machine_rates.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE MachineRates::Limit MachineRates::LimitOf(double its_flops, double its_bytes,
                                                       double data_bytes) const {
  if (!(flops > 0) || !(bytes > 0)) return {};
  size_t level = 0;
  while (level < caches.size() &&
         !(data_bytes <= caches[level].capacity && caches[level].bytes_per_second > 0))
    ++level;
  const double rate = level < caches.size() ? caches[level].bytes_per_second : bytes;
  const double compute = its_flops / flops, traffic = its_bytes / rate;
  return compute > traffic ? Limit{compute, 0} : Limit{traffic, level + 1};
}

OPKIT_COLD OPKIT_INLINE std::string MachineRates::CeilingName(size_t ceiling) const {
  if (ceiling == 0) return "FMA";
  return ceiling <= caches.size() ? caches[ceiling - 1].name : "memory";
}

OPKIT_INLINE PeakShare MachineRates::ShareOf(double its_flops, double its_bytes, double data_bytes,
                                             int64_t ns) const {
  const Limit limit = LimitOf(its_flops, its_bytes, data_bytes);
  if (ns <= 0 || !(limit.seconds > 0)) return {};
  return {limit.seconds / (static_cast<double>(ns) * 1e-9), CeilingName(limit.ceiling)};
}

OPKIT_COLD OPKIT_INLINE std::string ToString(const PeakShare& share) {
  if (!(share.share > 0)) return {};
  const double percent = 100 * share.share;
  char text[40];
  if (percent < 1e8)
    std::snprintf(text, sizeof text, "%.*f %%", percent < 1 ? 2 : percent < 10 ? 1 : 0, percent);
  else
    std::snprintf(text, sizeof text, "%.3g %%", percent);
  std::string out = text;
  out += " of " + share.ceiling;
  // A share of 100.4 % is written as 100 %, and needs no reason.
  if (percent >= 100.5)
    out += share.ceiling == "FMA" ? " (fewer or narrower operations)" : " (data nearer or unused)";
  return out;
}

}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_MACHINE_RATES_IPP_
