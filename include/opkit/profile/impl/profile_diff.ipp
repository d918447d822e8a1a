// Compares two recordings.
#ifndef OPKIT_PROFILE_IMPL_PROFILE_DIFF_IPP_
#define OPKIT_PROFILE_IMPL_PROFILE_DIFF_IPP_

#include <algorithm>
#include <cmath>
#include <map>

#include "opkit/base/json/json_writer.hpp"
#include "opkit/base/strings.hpp"
#include "opkit/profile/mann_whitney.hpp"
#include "opkit/profile/nesting.hpp"
#include "opkit/profile/profile_diff.hpp"
#include "opkit/profile/text_columns.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE std::vector<NamedTimes> TimesByName(const Profile& profile, TimesOf of) {
  std::map<std::string, std::vector<double>> times;
  detail::PerName<std::vector<double>*> known;
  for (const ProfileSpan& span : profile.spans) {
    // An adopted span of a task is the run of that task. Other adopted spans are parts of a run
    // that has a span of its own.
    if (span.open || (span.adopted && span.kind != Invocation::Kind::kTask)) continue;
    const uint32_t node = of == TimesOf::kNodes ? span.node : 0;
    std::vector<double>*& list = known.Of(span, node);
    if (!list)
      list = &times[DisplayName(span) + (node != 0 ? StrCat(" (", InternedName(node), ")") : "")];
    list->push_back(static_cast<double>(RunTime(span)));
  }
  std::vector<NamedTimes> out;
  for (auto& [name, list] : times) out.push_back({name, std::move(list)});
  return out;
}

namespace detail {

inline double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

inline const char* VerdictText(ProfileDiffRow::Verdict verdict) {
  constexpr const char* kNames[] = {"same", "slower", "faster", "too few runs", "new", "gone"};
  return kNames[static_cast<int>(verdict)];
}

}  // namespace detail

OPKIT_INLINE ProfileDiff CompareTimes(const std::vector<NamedTimes>& before,
                                      const std::vector<NamedTimes>& after, double significance) {
  using Verdict = ProfileDiffRow::Verdict;
  if (!(significance > 0 && significance < 1))
    Throw(ErrorCode::kInvalidArgument, "the significance is ", significance,
          "; expected a number between 0 and 1");
  struct Pair {
    std::vector<double> before, after;
  };
  std::map<std::string, Pair> pairs;
  const auto append = [](std::vector<double>& to, const NamedTimes& from) {
    for (const double time : from.times)
      if (!std::isfinite(time))
        Throw(ErrorCode::kInvalidArgument, "a time of '", from.name, "' is ", time,
              "; times to compare are finite");
    to.insert(to.end(), from.times.begin(), from.times.end());
  };
  for (const NamedTimes& one : before) append(pairs[one.name].before, one);
  for (const NamedTimes& one : after) append(pairs[one.name].after, one);

  ProfileDiff diff;
  diff.rows.reserve(pairs.size());
  std::vector<ProfileDiffRow*> compared;
  for (const auto& [name, pair] : pairs) {
    if (pair.before.empty() && pair.after.empty()) continue;
    ProfileDiffRow& row = diff.rows.emplace_back();
    row.name = name;
    row.runs_before = static_cast<int64_t>(pair.before.size());
    row.runs_after = static_cast<int64_t>(pair.after.size());
    row.median_before = detail::Median(pair.before);
    row.median_after = detail::Median(pair.after);
    if (row.runs_before == 0 || row.runs_after == 0) {
      row.verdict = row.runs_before == 0 ? Verdict::kNew : Verdict::kGone;
      continue;
    }
    if (row.median_before > 0) row.change = row.median_after / row.median_before - 1;
    row.p = MannWhitneyTest(pair.before, pair.after).p;
    compared.push_back(&row);
  }
  detail::CorrectForComparisons(compared);
  for (ProfileDiffRow* row : compared) {
    const double least = SmallestMannWhitneyP(row->runs_before, row->runs_after);
    if (row->p <= significance && row->median_after != row->median_before)
      row->verdict = row->median_after > row->median_before ? Verdict::kSlower : Verdict::kFaster;
    else if (least * static_cast<double>(compared.size()) > significance)
      row->verdict = Verdict::kTooFew;
  }
  const auto cost = [](const ProfileDiffRow& row) {
    return static_cast<double>((std::max)(row.runs_after, row.runs_before)) *
           (row.median_after - row.median_before);
  };
  std::stable_sort(
      diff.rows.begin(), diff.rows.end(),
      [&](const ProfileDiffRow& a, const ProfileDiffRow& b) { return cost(a) > cost(b); });
  return diff;
}

OPKIT_INLINE std::string ToString(const ProfileDiff& diff) {
  std::vector<std::vector<std::string>> lines = {
      {"name", "verdict", "runs", "after", "median us", "after", "change", "p"}};
  for (const ProfileDiffRow& row : diff.rows) {
    const bool both = row.runs_before > 0 && row.runs_after > 0;
    char change[32] = "", p[32] = "";
    if (both) {
      std::snprintf(change, sizeof change, "%+.1f %%", 100 * row.change);
      std::snprintf(p, sizeof p, row.p < 0.001 ? "%.1e" : "%.3f", row.p);
    }
    lines.push_back({row.name, detail::VerdictText(row.verdict), StrCat(row.runs_before),
                     StrCat(row.runs_after),
                     row.runs_before > 0 ? detail::Microseconds(row.median_before) : "",
                     row.runs_after > 0 ? detail::Microseconds(row.median_after) : "", change, p});
  }
  return detail::AlignColumns(lines, 2);
}

OPKIT_INLINE std::string ToJson(const ProfileDiff& diff) {
  std::string out;
  detail::JsonWriter json(out);
  json.BeginObject().Key("rows").BeginArray();
  for (const ProfileDiffRow& row : diff.rows) {
    json.BeginObject().Member("name", row.name).Member("runs_before", row.runs_before);
    json.Member("runs_after", row.runs_after).Member("median_before_ns", row.median_before);
    json.Member("median_after_ns", row.median_after).Member("change", row.change);
    json.Member("p", row.p).Member("verdict", detail::VerdictText(row.verdict)).EndObject();
  }
  json.EndArray().EndObject();
  return out;
}

}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_PROFILE_DIFF_IPP_
