// ProfileTable: counts and durations of the runs of each operator, scope and task.
#ifndef OPKIT_PROFILE_PROFILE_TABLE_HPP_
#define OPKIT_PROFILE_PROFILE_TABLE_HPP_

#include "opkit/profile/machine_rates.hpp"
#include "opkit/profile/profile.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct ProfileTableOptions {
  enum class Sort { kTotal, kSelf, kCount, kMean, kMax, kName };
  Sort sort = Sort::kTotal;
  bool by_node = false;  // a row for each node instead of one for each type of operator
  // Separates rows also by backend and by the inputs' dtypes and shapes; needs
  // ProfileOptions::shapes.
  bool by_shape = false;
  // Rates with which `of_peak` compares: those of MachinePeak() in opkit/profile/machine_peak.hpp.
  MachineRates peak = {};
};

// Statistics of the runs of one name; times in ns. `total` counts each run until its event has
// ended (RunTime). `self` leaves out spans inside a run on its thread: the author's own code for a
// custom operator. Other threads' work for that code is in the row `MyOp::user_code`.
struct ProfileTableRow {
  std::string name;
  std::string node;             // empty unless by_node
  std::string shapes, backend;  // empty unless by_shape
  std::string domain;
  int64_t count = 0;
  int64_t total = 0, self = 0, min = 0, max = 0;
  double mean = 0;
  // Percentiles of the run times (nearest rank).
  int64_t p50 = 0, p90 = 0, p99 = 0;
  // Sums over all runs, counted by their schemas (ProfileOptions::shapes).
  uint64_t flops = 0, bytes = 0;
  // The time that the machine needs at its peak for the flops and bytes of all runs, over `total`
  // (the roofline). Each run's bytes count as if they came from the smallest cache that holds them.
  PeakShare of_peak;
  int64_t allocated = 0;  // bytes allocated by the operator itself (ProfileOptions::memory)
  // Counts in the order of ProfileTable::counted: sums over all runs and the spans inside them.
  std::vector<uint64_t> counts;
};

// Number of runs in a domain (DomainOf). Their time leaves out the spans inside them.
struct ProfileDomainRow {
  std::string domain;
  int64_t count = 0, self = 0;
};

// Memory given out by an allocator, in bytes.
struct ProfileMemoryRow {
  std::string allocator;
  int64_t allocations = 0;
  int64_t allocated = 0;       // sum over all allocations
  int64_t peak = 0, live = 0;  // bytes in use: largest, and at the end
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

// Sums a profile's spans by name, and by node, backend and shapes if the options request it. Sorts
// the rows as the options say. Reads each span once.
ProfileTable MakeProfileTable(const Profile& profile, const ProfileTableOptions& options = {});
std::string ToString(const ProfileTable& table);
// {"duration_ns": …, "dropped": …, "cost_ns": …, "rows": [{"name": …, "count": …, "total_ns": …,
// …}],
//  "domains": […], "memory": […]}
std::string ToJson(const ProfileTable& table);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/profile_table.ipp"
#endif

#endif  // OPKIT_PROFILE_PROFILE_TABLE_HPP_
