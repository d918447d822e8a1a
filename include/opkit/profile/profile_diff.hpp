// CompareTimes: finds the operators that became slower or faster from one recording to another, and
// separates real differences from chance.
#ifndef OPKIT_PROFILE_PROFILE_DIFF_HPP_
#define OPKIT_PROFILE_PROFILE_DIFF_HPP_

#include "opkit/profile/profile.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Durations in ns of the runs that share a name.
struct NamedTimes {
  std::string name;
  std::vector<double> times;
};

enum class TimesOf : uint8_t { kOperators, kNodes };

// Returns the durations (RunTime) of a profile's runs, grouped and sorted by DisplayName. With
// kNodes the node is part of the name ("Conv (conv1)"). Spans that are still open are left out.
std::vector<NamedTimes> TimesByName(const Profile& profile, TimesOf of = TimesOf::kOperators);

// The comparison of the runs of one name.
struct ProfileDiffRow {
  enum class Verdict {
    kSame,  // any difference may be chance
    kSlower,
    kFaster,
    kTooFew,  // with so few runs no difference can be significant
    kNew,     // not in the first recording
    kGone,    // not in the second
  };
  std::string name;
  int64_t runs_before = 0, runs_after = 0;
  double median_before = 0, median_after = 0;  // ns
  // Relative change of the median: 0.1 for 10 % slower; 0 for a new or gone name.
  double change = 0;
  double p = 1;  // two-sided, Mann-Whitney, corrected for the number of comparisons (Holm 1979)
  Verdict verdict = Verdict::kSame;
};

struct ProfileDiff {
  // Sorted by the additional time, largest first: the difference of the medians times the larger of
  // the two numbers of runs.
  std::vector<ProfileDiffRow> rows;
};

// Compares the durations of equal names. `significance` bounds the probability that any difference
// is called significant although there is none. Runs of one process are not independent samples:
// clocks, caches and memory drift together. If that matters, record both sides in turns and join
// several recordings of each. Throws kInvalidArgument if `significance` is not between 0 and 1, or
// if a time is NaN or infinite.
//
//   Profiler::Start(); RunOld(); Profiler::Stop();
//   const auto before = TimesByName(Profiler::Read());
//   Profiler::Start(); RunNew(); Profiler::Stop();
//   std::puts(ToString(CompareTimes(before, TimesByName(Profiler::Read()))).c_str());
ProfileDiff CompareTimes(const std::vector<NamedTimes>& before,
                         const std::vector<NamedTimes>& after, double significance = 0.01);

std::string ToString(const ProfileDiff& diff);
// {"rows": [{"name": …, "runs_before": …, "runs_after": …, "median_before_ns": …,
// "median_after_ns": …, "change": …, "p": …, "verdict": "slower"}, …]}
std::string ToJson(const ProfileDiff& diff);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/profile_diff.ipp"
#endif

#endif  // OPKIT_PROFILE_PROFILE_DIFF_HPP_
