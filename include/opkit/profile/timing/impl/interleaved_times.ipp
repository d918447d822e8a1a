// Definitions of TimeInterleaved.
#ifndef OPKIT_PROFILE_TIMING_IMPL_INTERLEAVED_TIMES_IPP_
#define OPKIT_PROFILE_TIMING_IMPL_INTERLEAVED_TIMES_IPP_

#include <algorithm>
#include <cmath>
#include <random>

#include "opkit/base/error.hpp"
#include "opkit/base/index.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/profile/timing/interleaved_times.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// A sample, and the facts that decide whether it counts.
struct TimedSample {
  double ns = 0;
  int64_t spin_ns = 0;
  bool preempted = false;
};

class InterleavedTimer {
 public:
  InterleavedTimer(std::span<TimedCall> calls, const TimingOptions& options, TimingClock& clock)
      : calls_(calls),
        options_(options),
        clock_(clock),
        samples_(calls.size()),
        repeats_(calls.size(), 1) {}

  std::vector<CallTimes> Time() {
    const int64_t begin = clock_.Now();
    for (size_t i = 0; i < calls_.size(); ++i) Calibrate(i);
    std::vector<size_t> order;
    for (size_t i = 0; i < calls_.size(); ++i) order.push_back(i);
    std::mt19937_64 random(options_.seed);
    for (int round = 0; round < options_.most_rounds; ++round) {
      std::ranges::shuffle(order, random);
      for (const size_t i : order) samples_[i].push_back(Sample(i));
      if (round + 1 < options_.least_rounds) continue;
      // Each look sorts all samples: looks become rarer as rounds become more.
      const bool looks = (round + 1) % (1 + round / 16) == 0;
      if (static_cast<double>(clock_.Now() - begin) >= 1e9 * options_.seconds ||
          (looks && AllPrecise()))
        break;
    }
    std::vector<CallTimes> out;
    for (size_t i = 0; i < calls_.size(); ++i) out.push_back(Result(i));
    return out;
  }

 private:
  // The first run fills caches and pools and does not count. The number of runs that a sample needs
  // comes from the time of the second.
  void Calibrate(size_t i) {
    TimedCall& call = calls_[i];
    for (int run = 0; run < 2; ++run) {
      if (call.prepare) call.prepare();
      const int64_t start = clock_.Now();
      call.run();
      const auto taken = static_cast<double>((std::max)(clock_.Now() - start, int64_t{1}));
      if (run == 1 && !call.prepare)
        repeats_[i] = static_cast<int64_t>(1e9 * options_.least_sample_seconds / taken) + 1;
    }
  }
  TimedSample Sample(size_t i) {
    TimedCall& call = calls_[i];
    TimedSample out;
    out.spin_ns = clock_.Spin();
    if (call.prepare) call.prepare();
    const int64_t preemptions = clock_.Preemptions();
    const int64_t start = clock_.Now();
    for (int64_t run = 0; run < repeats_[i]; ++run) call.run();
    out.ns = static_cast<double>(clock_.Now() - start) / static_cast<double>(repeats_[i]);
    out.preempted = clock_.Preemptions() != preemptions;
    least_spin_ns_ = least_spin_ns_ ? (std::min)(least_spin_ns_, out.spin_ns) : out.spin_ns;
    return out;
  }
  bool AllPrecise() const {
    for (size_t i = 0; i < calls_.size(); ++i) {
      const CallTimes times = Result(i);
      if ((std::max)(times.high - times.median, times.median - times.low) >
          options_.precision * times.median)
        return false;
    }
    return true;
  }
  CallTimes Result(size_t i) const {
    CallTimes out;
    out.runs_per_sample = repeats_[i];
    for (const TimedSample& sample : samples_[i])
      if (sample.preempted)
        ++out.preempted;
      else if (IsThrottled(sample))
        ++out.throttled;
      else
        out.ns.push_back(sample.ns);
    out.disturbed = 2 * out.ns.size() < samples_[i].size();
    if (out.disturbed) {
      out.ns.clear();
      for (const TimedSample& sample : samples_[i]) out.ns.push_back(sample.ns);
    }
    Summarize(out);
    return out;
  }
  bool IsThrottled(const TimedSample& sample) const {
    return 4 * sample.spin_ns > 5 * least_spin_ns_;
  }

  std::span<TimedCall> calls_;
  const TimingOptions& options_;
  TimingClock& clock_;
  std::vector<std::vector<TimedSample>> samples_;  // by call
  std::vector<int64_t> repeats_;                   // by call: runs in a sample
  int64_t least_spin_ns_ = 0;
};

}  // namespace detail

OPKIT_INLINE int64_t TimingClock::Now() { return detail::MonotonicNs(); }
OPKIT_INLINE int64_t TimingClock::Preemptions() { return detail::ThreadPreemptions(); }
OPKIT_INLINE int64_t TimingClock::Spin() {
  const int64_t start = Now();
  uint64_t state = static_cast<uint64_t>(start);
  for (int i = 0; i < 2000; ++i) state = state * 6364136223846793005u + 1442695040888963407u;
  asm volatile("" : : "r"(state));
  return Now() - start;
}

OPKIT_INLINE void Summarize(CallTimes& times) {
  if (times.ns.empty()) return;
  std::vector<double> sorted = times.ns;
  std::ranges::sort(sorted);
  const size_t n = sorted.size();
  times.median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
  // The ranks between which a binomial number of 1 in 2 lies in 95 % of all cases.
  const double half = 0.98 * std::sqrt(static_cast<double>(n));
  const double middle = static_cast<double>(n) / 2;
  times.low = sorted[detail::Index((std::max)(0.0, std::floor(middle - half)))];
  times.high = sorted[(std::min)(n - 1, detail::Index(std::ceil(middle + half)))];
}

OPKIT_COLD OPKIT_INLINE std::vector<CallTimes> TimeInterleaved(std::span<TimedCall> calls,
                                                               const TimingOptions& options,
                                                               TimingClock* clock) {
  if (!(options.seconds > 0) || options.least_rounds < 1 ||
      options.most_rounds < options.least_rounds || !(options.precision > 0) ||
      !(options.least_sample_seconds > 0))
    Throw(ErrorCode::kInvalidArgument,
          "timing needs positive seconds, precision and least_sample_seconds, at least one round, "
          "and most_rounds that are not below least_rounds");
  TimingClock machine;
  return detail::InterleavedTimer(calls, options, clock ? *clock : machine).Time();
}

}}  // namespace opkit

#endif  // OPKIT_PROFILE_TIMING_IMPL_INTERLEAVED_TIMES_IPP_
