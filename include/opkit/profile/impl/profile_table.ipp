// Sums, percentiles and text of a profile's table.
#ifndef OPKIT_PROFILE_IMPL_PROFILE_TABLE_IPP_
#define OPKIT_PROFILE_IMPL_PROFILE_TABLE_IPP_

#include <algorithm>
#include <cstdio>
#include <map>
#include <string_view>
#include <tuple>

#include "opkit/base/index.hpp"
#include "opkit/base/json/json_writer.hpp"
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

// Sums up the spans, allocations and counts of a profile.
class ProfileTableMaker {
 public:
  ProfileTableMaker(const Profile& profile, const ProfileTableOptions& options)
      : profile_(profile), options_(options) {}

  ProfileTable Make() {
    table_.duration = profile_.duration;
    table_.dropped = profile_.dropped;
    table_.cost = profile_.cost;
    table_.counted = profile_.counted;
    table_.absent_counters = profile_.absent_counters;
    AddSpans();
    AddAllocations();
    AddCounts();
    for (auto& [name, row] : domains_) {
      row.domain = name;
      table_.domains.push_back(std::move(row));
    }
    for (auto& [key, sum] : sums_) {
      Finish(sum);
      table_.rows.push_back(std::move(sum.row));
    }
    SortRows();
    return std::move(table_);
  }

 private:
  struct Sums {
    ProfileTableRow row;
    std::vector<int64_t> times;
    std::vector<double> limits;  // seconds that the runs need at each ceiling of the peak
  };

  void AddSpans() {
    WalkSpans(
        profile_,
        [&](const ProfileSpan& span) {
          // An adopted span of a task is the run of that task. Other adopted spans are parts of a
          // run that has a span of its own.
          if (!span.adopted || span.kind == Invocation::Kind::kTask) AddRun(span);
        },
        [](const ProfileSpan&, int64_t, int64_t) {},
        [&](const ProfileSpan& span, int64_t self) {
          domains_[DomainOf(span)].self += self;
          // The run's total already includes adopted spans of other invocations. Those of a custom
          // operator are its user code, which has a row of its own.
          if (!span.adopted || span.kind == Invocation::Kind::kCustomOperator ||
              span.kind == Invocation::Kind::kTask)
            SumsOf(span).row.self += self;
        });
  }
  void AddRun(const ProfileSpan& span) {
    Sums& sum = SumsOf(span);
    sum.times.push_back(RunTime(span));
    sum.row.flops += span.work.flops;
    sum.row.bytes += span.work.bytes;
    AddLimit(sum, static_cast<double>(span.work.flops), static_cast<double>(span.work.bytes));
    ++domains_[DomainOf(span)].count;
    if (!profile_.allocations.empty() || !profile_.counts.empty()) of_invocation_[span.id] = &sum;
  }
  void AddLimit(Sums& sum, double flops, double bytes) const {
    const MachineRates::Limit limit = options_.peak.LimitOf(flops, bytes, bytes);
    if (!(limit.seconds > 0)) return;
    sum.limits.resize((std::max)(sum.limits.size(), limit.ceiling + 1));
    sum.limits[limit.ceiling] += limit.seconds;
  }
  // The share of the peak, and the ceiling that limits most of the time.
  PeakShare ShareOfPeak(const Sums& sum) const {
    double seconds = 0;
    size_t most = 0;
    for (size_t i = 0; i < sum.limits.size(); ++i) {
      seconds += sum.limits[i];
      if (sum.limits[i] > sum.limits[most]) most = i;
    }
    if (!(seconds > 0) || sum.row.total <= 0) return {};
    return {seconds / (static_cast<double>(sum.row.total) * 1e-9), options_.peak.CeilingName(most)};
  }
  Sums& SumsOf(const ProfileSpan& span) {
    const uint32_t node_name = options_.by_node ? span.node : 0;
    const uint32_t shapes_name = options_.by_shape ? span.work.shapes : 0;
    const uint32_t backend_name = options_.by_shape ? span.work.backend : 0;
    Sums*& found = known_.Of(span, node_name, shapes_name, backend_name);
    if (found) return *found;
    const std::string name = DisplayName(span), node = InternedName(node_name),
                      shapes = InternedName(shapes_name), backend = InternedName(backend_name);
    found = &sums_[{name, node, shapes, backend}];
    found->row.name = name;
    found->row.node = node;
    found->row.shapes = shapes;
    found->row.backend = backend;
    found->row.domain = DomainOf(span);
    return *found;
  }
  // Returns the row of an invocation, or null.
  ProfileTableRow* RowOf(uint64_t invocation) {
    const auto found = of_invocation_.find(invocation);
    return found == of_invocation_.end() ? nullptr : &found->second->row;
  }

  void AddAllocations() {
    std::map<uint32_t, ProfileMemoryRow> memory;  // by the allocator's name
    for (const ProfileAllocation& one : profile_.allocations) {
      ProfileMemoryRow& row = memory[one.allocator];
      row.peak = (std::max)(row.peak, one.live);
      row.live = one.live;
      if (one.bytes <= 0) continue;
      ++row.allocations;
      row.allocated += one.bytes;
      if (ProfileTableRow* const run = RowOf(one.invocation)) run->allocated += one.bytes;
    }
    for (auto& [name, row] : memory) {
      row.allocator = InternedName(name);
      table_.memory.push_back(std::move(row));
    }
  }
  void AddCounts() {
    for (auto& [key, sum] : sums_) sum.row.counts.resize(table_.counted.size());
    for (const ProfileCounts& one : profile_.counts)
      if (ProfileTableRow* const run = RowOf(one.invocation))
        for (size_t i = 0; i < run->counts.size(); ++i) run->counts[i] += one.values[i];
  }

  // Computes the row's count, total, extremes, mean and percentiles from its run times, and its
  // share of the peak.
  void Finish(Sums& sum) const {
    ProfileTableRow& row = sum.row;
    std::sort(sum.times.begin(), sum.times.end());
    row.count = static_cast<int64_t>(sum.times.size());
    for (int64_t time : sum.times) row.total += time;
    row.of_peak = ShareOfPeak(sum);
    if (row.count == 0) return;
    row.min = sum.times.front();
    row.max = sum.times.back();
    row.mean = static_cast<double>(row.total) / static_cast<double>(row.count);
    row.p50 = Percentile(sum.times, 50);
    row.p90 = Percentile(sum.times, 90);
    row.p99 = Percentile(sum.times, 99);
  }
  void SortRows() {
    using Sort = ProfileTableOptions::Sort;
    if (options_.sort == Sort::kName) return;  // the rows are sorted by name already
    const auto key = [&](const ProfileTableRow& row) {
      switch (options_.sort) {
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
        table_.rows.begin(), table_.rows.end(),
        [&](const ProfileTableRow& a, const ProfileTableRow& b) { return key(a) > key(b); });
  }

  const Profile& profile_;
  const ProfileTableOptions& options_;
  ProfileTable table_;
  std::map<std::tuple<std::string, std::string, std::string, std::string>, Sums> sums_;
  PerName<Sums*> known_;
  std::map<std::string_view, ProfileDomainRow> domains_;
  // Finds the sums for allocations and counts, which name an invocation.
  std::map<uint64_t, Sums*> of_invocation_;
};
}  // namespace detail

OPKIT_INLINE ProfileTable MakeProfileTable(const Profile& profile,
                                           const ProfileTableOptions& options) {
  return detail::ProfileTableMaker(profile, options).Make();
}

namespace detail {
// Formats amount / ns, the rate in units of 10^9 per second: "12.3"; "" for 0.
inline std::string Rate(uint64_t amount, int64_t ns) {
  if (amount == 0 || ns <= 0) return {};
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", static_cast<double>(amount) / static_cast<double>(ns));
  return text;
}
}  // namespace detail

OPKIT_INLINE std::string ToString(const ProfileTable& table) {
  const auto any = [&](auto member) {
    return std::any_of(table.rows.begin(), table.rows.end(),
                       [&](const ProfileTableRow& row) { return row.*member != 0; });
  };
  const bool work = any(&ProfileTableRow::bytes), memory = any(&ProfileTableRow::allocated);
  const bool peak = std::ranges::any_of(
      table.rows, [](const ProfileTableRow& row) { return row.of_peak.share > 0; });
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
    if (peak) line.push_back(ToString(row.of_peak));
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
  std::string out;
  detail::JsonWriter json(out);
  json.BeginObject().Member("duration_ns", table.duration).Member("dropped", table.dropped);
  json.Member("cost_ns", table.cost).Key("rows").BeginArray();
  for (const ProfileTableRow& row : table.rows) {
    json.NewLine().BeginObject().Member("name", row.name).Member("node", row.node);
    json.Member("shapes", row.shapes).Member("backend", row.backend).Member("domain", row.domain);
    json.Member("count", row.count).Member("total_ns", row.total).Member("self_ns", row.self);
    json.Member("mean_ns", row.mean).Member("min_ns", row.min).Member("p50_ns", row.p50);
    json.Member("p90_ns", row.p90).Member("p99_ns", row.p99).Member("max_ns", row.max);
    json.Member("flops", row.flops).Member("bytes", row.bytes);
    json.Member("of_peak", row.of_peak.share).Member("ceiling", row.of_peak.ceiling);
    json.Member("allocated", row.allocated);
    for (size_t i = 0; i < row.counts.size(); ++i) json.Member(table.counted[i], row.counts[i]);
    json.EndObject();
  }
  json.NewLine().EndArray().Key("domains").BeginArray();
  for (const ProfileDomainRow& row : table.domains) {
    json.NewLine().BeginObject().Member("domain", row.domain);
    json.Member("count", row.count).Member("self_ns", row.self).EndObject();
  }
  json.NewLine().EndArray().Key("memory").BeginArray();
  for (const ProfileMemoryRow& row : table.memory) {
    json.NewLine().BeginObject().Member("allocator", row.allocator);
    json.Member("allocations", row.allocations).Member("allocated", row.allocated);
    json.Member("peak", row.peak).Member("live", row.live).EndObject();
  }
  json.NewLine().EndArray().EndObject();
  return out + '\n';
}

}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_PROFILE_TABLE_IPP_
