// CompareTimes: which operators got slower or faster from one recording to another, and which
// differences are no chance.
#ifndef OPKIT_PROFILE_PROFILE_DIFF_HPP_
#define OPKIT_PROFILE_PROFILE_DIFF_HPP_

#include "opkit/profile/profile.hpp"

namespace opkit::inline OPKIT_ABI {

// How long each run took of what has one name, in ns.
struct NamedTimes {
  std::string name;
  std::vector<double> times;
};

// The runs of a profile by DisplayName, each until its event has ended; `by_node` with the node
// behind it ("Conv (conv1)"). By name. Spans that are still open are left out.
std::vector<NamedTimes> TimesByName(const Profile& profile, bool by_node = false);

struct ProfileDiffRow {
  enum class Verdict {
    kSame,  // no difference that could not be chance
    kSlower,
    kFaster,
    kTooFew,  // so few runs that no difference could be significant
    kNew,     // not in the first recording
    kGone,    // not in the second
  };
  std::string name;
  int64_t runs_before = 0, runs_after = 0;
  double median_before = 0, median_after = 0;  // ns
  double change = 0;  // of the medians, relative: 0.1 for 10 % slower; 0 for a new or gone one
  double p = 1;  // two-sided, Mann-Whitney, corrected for the number of comparisons (Holm 1979)
  Verdict verdict = Verdict::kSame;
};

struct ProfileDiff {
  // Those that cost more time come first: by runs_after times the difference of the medians.
  std::vector<ProfileDiffRow> rows;
};

// `significance` is the probability of calling any of the differences significant where there is
// none. Runs of one process are no independent samples (clocks, caches and memory drift together):
// where it matters, record in turns and put several recordings of each side together. Error
// (kInvalidArgument) for a significance that is not between 0 and 1, and for a time that is a NaN
// or infinite.
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

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/profile_diff.ipp"
#endif

#endif  // OPKIT_PROFILE_PROFILE_DIFF_HPP_
