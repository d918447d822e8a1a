// Sums, percentiles and text of a profile's table.
#ifndef OPKIT_PROFILE_IMPL_PROFILE_TABLE_IPP_
#define OPKIT_PROFILE_IMPL_PROFILE_TABLE_IPP_

#include <algorithm>
#include <cstdio>
#include <map>

#include "opkit/base/index.hpp"
#include "opkit/profile/json_text.hpp"
#include "opkit/profile/nesting.hpp"
#include "opkit/profile/profile_table.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// The nearest-rank percentile of times in ascending order.
inline int64_t Percentile(const std::vector<int64_t>& times, int percent) {
  const size_t rank = (times.size() * Index(percent) + 99) / 100;
  return times[rank == 0 ? 0 : rank - 1];
}

inline std::string Microseconds(double ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", ns / 1000);
  return text;
}

}  // namespace detail

OPKIT_INLINE ProfileTable MakeProfileTable(const Profile& profile,
                                           const ProfileTableOptions& options) {
  struct Sums {
    ProfileTableRow row;
    std::vector<int64_t> times;
  };
  std::map<std::pair<std::string, std::string>, Sums> sums;
  detail::PerName<Sums*> known;
  const auto sums_of = [&](const ProfileSpan& span) -> Sums& {
    const uint32_t node_name = options.by_node ? span.node : 0;
    Sums*& found = known.Of(span, node_name);
    if (found) return *found;
    const std::string name = DisplayName(span), node = InternedName(node_name);
    found = &sums[{name, node}];
    found->row.name = name;
    found->row.node = node;
    found->row.domain = DomainOf(span);
    return *found;
  };
  detail::WalkSpans(
      profile,
      [&](const ProfileSpan& span) {
        // A part of a task is its run; parts of other invocations are in their own span.
        if (span.adopted && span.kind != InvocationKind::kTask) return;
        sums_of(span).times.push_back((std::max)(span.end, span.completed) - span.begin);
      },
      [](const ProfileSpan&, int64_t, int64_t) {},
      [&](const ProfileSpan& span, int64_t self) { sums_of(span).row.self += self; });

  ProfileTable table;
  table.duration = profile.duration;
  table.dropped = profile.dropped;
  for (auto& [key, sum] : sums) {
    ProfileTableRow& row = sum.row;
    std::sort(sum.times.begin(), sum.times.end());
    row.count = static_cast<int64_t>(sum.times.size());
    for (int64_t time : sum.times) row.total += time;
    if (row.count > 0) {
      row.min = sum.times.front();
      row.max = sum.times.back();
      row.mean = static_cast<double>(row.total) / static_cast<double>(row.count);
      row.p50 = detail::Percentile(sum.times, 50);
      row.p90 = detail::Percentile(sum.times, 90);
      row.p99 = detail::Percentile(sum.times, 99);
    }
    table.rows.push_back(std::move(row));
  }
  using Sort = ProfileTableOptions::Sort;
  if (options.sort == Sort::kName) return table;
  const auto key = [&](const ProfileTableRow& row) {
    switch (options.sort) {
      case Sort::kSelf:
        return static_cast<double>(row.self);
      case Sort::kCount:
        return static_cast<double>(row.count);
      case Sort::kMean:
        return row.mean;
      case Sort::kMax:
        return static_cast<double>(row.max);
      default:
        return static_cast<double>(row.total);
    }
  };
  std::stable_sort(
      table.rows.begin(), table.rows.end(),
      [&](const ProfileTableRow& a, const ProfileTableRow& b) { return key(a) > key(b); });
  return table;
}

OPKIT_INLINE std::string ToString(const ProfileTable& table) {
  std::vector<std::vector<std::string>> lines{{"name", "domain", "count", "total us", "self us",
                                               "mean us", "min us", "p50 us", "p90 us", "p99 us",
                                               "max us"}};
  for (const ProfileTableRow& row : table.rows) {
    const auto us = [](int64_t ns) { return detail::Microseconds(static_cast<double>(ns)); };
    lines.push_back({row.node.empty() ? row.name : StrCat(row.name, " (", row.node, ")"),
                     row.domain, StrCat(row.count), us(row.total), us(row.self),
                     detail::Microseconds(row.mean), us(row.min), us(row.p50), us(row.p90),
                     us(row.p99), us(row.max)});
  }
  std::vector<size_t> widths(lines[0].size());
  for (const auto& line : lines)
    for (size_t i = 0; i < line.size(); ++i) widths[i] = (std::max)(widths[i], line[i].size());
  std::string text;
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string pad(widths[i] - line[i].size(), ' ');
      const bool is_text = i < 2;
      if (i > 0) text += "  ";
      text += is_text ? line[i] + pad : pad + line[i];
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  if (table.dropped > 0) text += StrCat(table.dropped, " records found no room\n");
  return text;
}

OPKIT_INLINE std::string ToJson(const ProfileTable& table) {
  std::string out = StrCat("{\"duration_ns\": ", table.duration, ", \"dropped\": ", table.dropped,
                           ", \"rows\": [");
  for (const ProfileTableRow& row : table.rows) {
    out += &row == table.rows.data() ? "\n{\"name\": " : ",\n{\"name\": ";
    detail::AppendJsonString(out, row.name);
    out += ", \"node\": ";
    detail::AppendJsonString(out, row.node);
    out += ", \"domain\": ";
    detail::AppendJsonString(out, row.domain);
    out += StrCat(", \"count\": ", row.count, ", \"total_ns\": ", row.total,
                  ", \"self_ns\": ", row.self, ", \"mean_ns\": ", row.mean);
    out += StrCat(", \"min_ns\": ", row.min, ", \"p50_ns\": ", row.p50, ", \"p90_ns\": ", row.p90,
                  ", \"p99_ns\": ", row.p99, ", \"max_ns\": ", row.max, "}");
  }
  return out + "\n]}\n";
}

}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_PROFILE_TABLE_IPP_
