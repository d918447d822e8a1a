// Sums, percentiles and text of a profile's table.
#ifndef OPKIT_PROFILE_IMPL_PROFILE_TABLE_IPP_
#define OPKIT_PROFILE_IMPL_PROFILE_TABLE_IPP_

#include <algorithm>
#include <cstdio>
#include <map>
#include <string_view>
#include <tuple>

#include "opkit/base/index.hpp"
#include "opkit/profile/json_text.hpp"
#include "opkit/profile/nesting.hpp"
#include "opkit/profile/profile_table.hpp"
#include "opkit/profile/text_columns.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the nearest-rank percentile of times in ascending order.
inline int64_t Percentile(const std::vector<int64_t>& times, int percent) {
  const size_t rank = (times.size() * Index(percent) + 99) / 100;
  return times[rank == 0 ? 0 : rank - 1];
}
}  // namespace detail

OPKIT_INLINE ProfileTable MakeProfileTable(const Profile& profile,
                                           const ProfileTableOptions& options) {
  struct Sums {
    ProfileTableRow row;
    std::vector<int64_t> times;
  };
  std::map<std::tuple<std::string, std::string, std::string, std::string>, Sums> sums;
  detail::PerName<Sums*> known;
  const auto sums_of = [&](const ProfileSpan& span) -> Sums& {
    const uint32_t node_name = options.by_node ? span.node : 0;
    const uint32_t shapes_name = options.by_shape ? span.work.shapes : 0;
    const uint32_t backend_name = options.by_shape ? span.work.backend : 0;
    Sums*& found = known.Of(span, node_name, shapes_name, backend_name);
    if (found) return *found;
    const std::string name = DisplayName(span), node = InternedName(node_name),
                      shapes = InternedName(shapes_name), backend = InternedName(backend_name);
    found = &sums[{name, node, shapes, backend}];
    found->row.name = name;
    found->row.node = node;
    found->row.shapes = shapes;
    found->row.backend = backend;
    found->row.domain = DomainOf(span);
    return *found;
  };
  std::map<std::string_view, ProfileDomainRow> domains;
  std::map<uint64_t, Sums*> of_invocation;  // for allocations and counts, which name an invocation
  detail::WalkSpans(
      profile,
      [&](const ProfileSpan& span) {
        // An adopted span of a task is its run. Other adopted spans are parts of a run that has its
        // own span.
        if (span.adopted && span.kind != InvocationKind::kTask) return;
        Sums& sum = sums_of(span);
        sum.times.push_back(RunTime(span));
        sum.row.flops += span.work.flops;
        sum.row.bytes += span.work.bytes;
        ++domains[DomainOf(span)].count;
        if (!profile.allocations.empty() || !profile.counts.empty()) of_invocation[span.id] = &sum;
      },
      [](const ProfileSpan&, int64_t, int64_t) {},
      [&](const ProfileSpan& span, int64_t self) {
        domains[DomainOf(span)].self += self;
        // Adopted spans of other invocations are in the run's total already. Those of a custom
        // operator are its user code, which has a row of its own.
        if (!span.adopted || span.kind == InvocationKind::kCustomOperator ||
            span.kind == InvocationKind::kTask)
          sums_of(span).row.self += self;
      });

  ProfileTable table;
  std::map<uint32_t, ProfileMemoryRow> memory;
  for (const ProfileAllocation& one : profile.allocations) {
    ProfileMemoryRow& row = memory[one.allocator];
    row.peak = (std::max)(row.peak, one.live);
    row.live = one.live;
    if (one.bytes <= 0) continue;
    ++row.allocations;
    row.allocated += one.bytes;
    if (const auto found = of_invocation.find(one.invocation); found != of_invocation.end())
      found->second->row.allocated += one.bytes;
  }
  table.counted = profile.counted;
  table.absent_counters = profile.absent_counters;
  for (auto& [key, sum] : sums) sum.row.counts.resize(table.counted.size());
  for (const ProfileCounts& one : profile.counts)
    if (const auto found = of_invocation.find(one.invocation); found != of_invocation.end())
      for (size_t i = 0; i < table.counted.size(); ++i)
        found->second->row.counts[i] += one.values[i];
  for (auto& [name, row] : memory) {
    row.allocator = InternedName(name);
    table.memory.push_back(std::move(row));
  }
  for (auto& [name, row] : domains) {
    row.domain = name;
    table.domains.push_back(std::move(row));
  }
  table.duration = profile.duration;
  table.dropped = profile.dropped;
  table.cost = profile.cost;
  for (auto& [key, sum] : sums) {
    ProfileTableRow& row = sum.row;
    std::sort(sum.times.begin(), sum.times.end());
    row.count = static_cast<int64_t>(sum.times.size());
    for (int64_t time : sum.times) row.total += time;
    row.of_peak = options.peak.ShareOf(static_cast<double>(row.flops),
                                       static_cast<double>(row.bytes), row.total);
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

namespace detail {
// Formats amount / ns, the rate in units of 10^9 per second: "12.3"; "" for 0.
inline std::string Rate(uint64_t amount, int64_t ns) {
  if (amount == 0 || ns <= 0) return {};
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", static_cast<double>(amount) / static_cast<double>(ns));
  return text;
}
// Formats a share: "12%"; "" for 0.
inline std::string Percent(double share) {
  if (share == 0) return {};
  char text[32];
  std::snprintf(text, sizeof text, share < 1e6 ? "%.0f%%" : "%.3g%%", share * 100);
  return text;
}
}  // namespace detail

OPKIT_INLINE std::string ToString(const ProfileTable& table) {
  const auto any = [&](auto member) {
    return std::any_of(table.rows.begin(), table.rows.end(),
                       [&](const ProfileTableRow& row) { return row.*member != 0; });
  };
  const bool work = any(&ProfileTableRow::bytes), peak = any(&ProfileTableRow::of_peak),
             memory = any(&ProfileTableRow::allocated);
  std::vector<std::vector<std::string>> lines{{"name", "domain", "count", "total us", "self us",
                                               "mean us", "min us", "p50 us", "p90 us", "p99 us",
                                               "max us"}};
  if (work) lines[0].insert(lines[0].end(), {"GFLOP/s", "GB/s"});
  if (peak) lines[0].push_back("of peak");
  if (memory) lines[0].push_back("allocated");
  lines[0].insert(lines[0].end(), table.counted.begin(), table.counted.end());
  const auto us = [](int64_t ns) { return detail::Microseconds(static_cast<double>(ns)); };
  for (const ProfileTableRow& row : table.rows) {
    auto& line = lines.emplace_back(std::vector<std::string>{
        StrCat(row.name, row.node.empty() ? "" : StrCat(" (", row.node, ")"),
               row.shapes.empty() ? "" : " " + row.shapes,
               row.backend.empty() ? "" : " by " + row.backend),
        row.domain, StrCat(row.count), us(row.total), us(row.self), detail::Microseconds(row.mean),
        us(row.min), us(row.p50), us(row.p90), us(row.p99), us(row.max)});
    if (work)
      line.insert(line.end(),
                  {detail::Rate(row.flops, row.total), detail::Rate(row.bytes, row.total)});
    if (peak) line.push_back(detail::Percent(row.of_peak));
    if (memory) line.push_back(row.allocated == 0 ? std::string() : StrCat(row.allocated));
    for (const uint64_t count : row.counts) line.push_back(StrCat(count));
  }
  std::string text = detail::AlignColumns(lines, 2);
  if (table.domains.size() > 1) {
    lines = {{"domain", "count", "self us"}};
    for (const ProfileDomainRow& row : table.domains)
      lines.push_back({row.domain, StrCat(row.count), us(row.self)});
    text += '\n' + detail::AlignColumns(lines, 1);
  }
  if (!table.memory.empty()) {
    lines = {{"memory", "allocations", "allocated", "peak", "live"}};
    for (const ProfileMemoryRow& row : table.memory)
      lines.push_back({row.allocator, StrCat(row.allocations), StrCat(row.allocated),
                       StrCat(row.peak), StrCat(row.live)});
    text += '\n' + detail::AlignColumns(lines, 1);
  }
  for (const std::string& absent : table.absent_counters)
    text += StrCat("not counted: ", absent, "\n");
  if (table.cost > 0)
    text += StrCat("\n", us(table.duration), " us; of which recording took about ", us(table.cost),
                   " us\n");
  if (table.dropped > 0) text += StrCat(table.dropped, " records found no room\n");
  return text;
}

OPKIT_INLINE std::string ToJson(const ProfileTable& table) {
  std::string out = StrCat("{\"duration_ns\": ", table.duration, ", \"dropped\": ", table.dropped,
                           ", \"cost_ns\": ", table.cost);
  const auto begin_list = [&](const char* name) { out += StrCat(", \"", name, "\": ["); };
  const auto begin_row = [&](bool first, const char* key, const std::string& value) {
    out += first ? "\n{\"" : ",\n{\"";
    out += StrCat(key, "\": ");
    detail::AppendJsonString(out, value);
  };
  const auto text = [&](const char* key, const std::string& value) {
    out += StrCat(", \"", key, "\": ");
    detail::AppendJsonString(out, value);
  };
  const auto number = [&](const char* key, auto value) {
    out += ", ";
    detail::AppendJsonString(out, key);
    out += ": ";
    if constexpr (std::is_floating_point_v<decltype(value)>)
      detail::AppendNumber(out, value);
    else
      detail::AppendInteger(out, value);
  };
  begin_list("rows");
  for (const ProfileTableRow& row : table.rows) {
    begin_row(&row == table.rows.data(), "name", row.name);
    text("node", row.node);
    text("shapes", row.shapes);
    text("backend", row.backend);
    text("domain", row.domain);
    number("count", row.count);
    number("total_ns", row.total);
    number("self_ns", row.self);
    number("mean_ns", row.mean);
    number("min_ns", row.min);
    number("p50_ns", row.p50);
    number("p90_ns", row.p90);
    number("p99_ns", row.p99);
    number("max_ns", row.max);
    number("flops", row.flops);
    number("bytes", row.bytes);
    number("of_peak", row.of_peak);
    number("allocated", row.allocated);
    for (size_t i = 0; i < row.counts.size(); ++i) number(table.counted[i].c_str(), row.counts[i]);
    out += '}';
  }
  out += "\n]";
  begin_list("domains");
  for (const ProfileDomainRow& row : table.domains) {
    begin_row(&row == table.domains.data(), "domain", row.domain);
    number("count", row.count);
    number("self_ns", row.self);
    out += '}';
  }
  out += "\n]";
  begin_list("memory");
  for (const ProfileMemoryRow& row : table.memory) {
    begin_row(&row == table.memory.data(), "allocator", row.allocator);
    number("allocations", row.allocations);
    number("allocated", row.allocated);
    number("peak", row.peak);
    number("live", row.live);
    out += '}';
  }
  return out + "\n]}\n";
}

}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_PROFILE_TABLE_IPP_
