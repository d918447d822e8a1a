// ProfileTable: how often each operator, scope and task ran, and how long.
#ifndef OPKIT_PROFILE_PROFILE_TABLE_HPP_
#define OPKIT_PROFILE_PROFILE_TABLE_HPP_

#include "opkit/profile/profile.hpp"

namespace opkit::inline OPKIT_ABI {

struct ProfileTableOptions {
  enum class Sort { kTotal, kSelf, kCount, kMean, kMax, kName };
  Sort sort = Sort::kTotal;
  bool by_node = false;  // a row for each node instead of one for each type of operator
};

// Times in ns. `total` counts a run until its event has ended; `self` is without the spans inside
// it on its thread.
struct ProfileTableRow {
  std::string name;
  std::string node;  // empty unless by_node
  std::string domain;
  int64_t count = 0;
  int64_t total = 0, self = 0, min = 0, max = 0;
  double mean = 0;
  int64_t p50 = 0, p90 = 0,
          p99 = 0;  // the smallest times that this part of the runs does not exceed
};

struct ProfileTable {
  std::vector<ProfileTableRow> rows;
  int64_t duration = 0;
  int64_t dropped = 0;
};

ProfileTable MakeProfileTable(const Profile& profile, const ProfileTableOptions& options = {});
std::string ToString(const ProfileTable& table);
// {"duration_ns": …, "dropped": …, "rows": [{"name": …, "count": …, "total_ns": …, …}]}
std::string ToJson(const ProfileTable& table);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/profile_table.ipp"
#endif

#endif  // OPKIT_PROFILE_PROFILE_TABLE_HPP_
