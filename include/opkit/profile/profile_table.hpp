// ProfileTable: how often each operator, scope and task ran, and how long.
#ifndef OPKIT_PROFILE_PROFILE_TABLE_HPP_
#define OPKIT_PROFILE_PROFILE_TABLE_HPP_

#include "opkit/profile/machine_rates.hpp"
#include "opkit/profile/profile.hpp"

namespace opkit::inline OPKIT_ABI {

struct ProfileTableOptions {
  enum class Sort { kTotal, kSelf, kCount, kMean, kMax, kName };
  Sort sort = Sort::kTotal;
  bool by_node = false;  // a row for each node instead of one for each type of operator
  // And for each dtypes and shapes of inputs and each backend, with ProfileOptions::shapes.
  bool by_shape = false;
  MachineRates peak =
      {};  // what rates are compared with: MachinePeak() of opkit/profile/machine_peak.hpp
};

// Times in ns. `total` counts a run until its event has ended; `self` is without the spans inside
// it, on its thread: of a custom operator, its author's own code. What other threads did for that
// is in the row `MyOp::user_code`.
struct ProfileTableRow {
  std::string name;
  std::string node;             // empty unless by_node
  std::string shapes, backend;  // empty unless by_shape
  std::string domain;
  int64_t count = 0;
  int64_t total = 0, self = 0, min = 0, max = 0;
  double mean = 0;
  // The smallest times that this part of the runs does not exceed.
  int64_t p50 = 0, p90 = 0, p99 = 0;
  // Of all runs, as their schemas count (ProfileOptions::shapes).
  uint64_t flops = 0, bytes = 0;
  // Their rate as a share of what the machine could do at most with these flops and bytes
  // (roofline: Williams, Waterman, Patterson 2009); 0 where that is not known.
  double of_peak = 0;
  int64_t allocated = 0;  // bytes, in the operator itself (ProfileOptions::memory)
  // What was counted in all runs, with what is inside them: of ProfileTable::counted.
  std::vector<uint64_t> counts;
};

// The time spent in a domain (DomainOf) itself.
struct ProfileDomainRow {
  std::string domain;
  int64_t count = 0, self = 0;
};

// What an allocator gave out, in bytes.
struct ProfileMemoryRow {
  std::string allocator;
  int64_t allocations = 0;
  int64_t allocated = 0;       // of all of them
  int64_t peak = 0, live = 0;  // at any time; at the end
};

struct ProfileTable {
  std::vector<ProfileTableRow> rows;
  std::vector<ProfileDomainRow> domains;
  std::vector<ProfileMemoryRow> memory;
  int64_t duration = 0;
  int64_t dropped = 0;
  std::vector<std::string> counted, absent_counters;  // as in Profile
  int64_t cost = 0;                                   // ns that recording took, estimated
};

ProfileTable MakeProfileTable(const Profile& profile, const ProfileTableOptions& options = {});
std::string ToString(const ProfileTable& table);
// {"duration_ns": …, "dropped": …, "cost_ns": …, "rows": [{"name": …, "count": …, "total_ns": …,
// …}],
//  "domains": […], "memory": […]}
std::string ToJson(const ProfileTable& table);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/profile_table.ipp"
#endif

#endif  // OPKIT_PROFILE_PROFILE_TABLE_HPP_
