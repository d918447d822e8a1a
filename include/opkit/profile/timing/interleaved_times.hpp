// TimeInterleaved: times several calls in turns, so that what changes on the machine while it
// measures (clock rate, heat, other programs) changes all of them alike.
#ifndef OPKIT_PROFILE_TIMING_INTERLEAVED_TIMES_HPP_
#define OPKIT_PROFILE_TIMING_INTERLEAVED_TIMES_HPP_

#include <cstdint>
#include <span>
#include <vector>

#include "opkit/base/unique_function.hpp"
#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct TimedCall {
  UniqueFunction<void()> run;
  // Called before each sample, untimed, to put data out of the caches for example; a sample is one
  // run then. May be empty.
  UniqueFunction<void()> prepare = {};
};

struct TimingOptions {
  double seconds = 0.2;  // for all calls together; a first round and least_rounds are always made
  int least_rounds = 7;
  int most_rounds = 1000;
  // A call is measured well when its interval reaches at most this far from the median, relative to
  // it. Timing ends when all calls are.
  double precision = 0.01;
  double least_sample_seconds = 20e-6;  // shorter calls are repeated in a sample
  uint64_t seed = 1;                    // of the order of the calls in each round
};

// The times of one call.
struct CallTimes {
  std::vector<double> ns;  // of one run, by sample, in the order in which they were taken
  // The median, and its 95 % confidence interval by order statistics, which assumes no
  // distribution (Hettmansperger and Sheather 1986).
  double median = 0, low = 0, high = 0;
  int64_t runs_per_sample = 1;
  // Samples left out: the system took the processor away during the sample (an involuntary context
  // switch of this thread), or the processor was slow: a fixed loop before the sample took a
  // quarter longer than at best.
  int preempted = 0, throttled = 0;
  // True if more than half of the samples would have been left out. `ns` has all of them then.
  bool disturbed = false;
};

// The readings that TimeInterleaved takes from the machine. Tests plant their own.
class TimingClock {
 public:
  virtual ~TimingClock() = default;
  virtual int64_t Now();          // ns, monotonic
  virtual int64_t Preemptions();  // involuntary context switches of this thread so far
  virtual int64_t Spin();         // ns that a fixed loop takes, a few microseconds
};

// Times each call in rounds: every round takes one sample of each, in a random order. Errors of a
// call are passed on. Throws kInvalidArgument for options that are not positive.
//
//   std::vector<TimedCall> calls;
//   calls.push_back({[&] { a.Run(); }});
//   calls.push_back({[&] { b.Run(); }});
//   const std::vector<CallTimes> times = TimeInterleaved(calls, {.seconds = 0.5});
//   const double speedup = times[0].median / times[1].median;
std::vector<CallTimes> TimeInterleaved(std::span<TimedCall> calls,
                                       const TimingOptions& options = {},
                                       TimingClock* clock = nullptr);

// Fills in the median and its interval from `ns`; zeros if it is empty.
void Summarize(CallTimes& times);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/timing/impl/interleaved_times.ipp"
#endif

#endif  // OPKIT_PROFILE_TIMING_INTERLEAVED_TIMES_HPP_
