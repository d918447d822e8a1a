// Implements the counters of Linux, by perf_event_open(2).
#ifndef OPKIT_PROFILE_IMPL_COUNTERS_IPP_
#define OPKIT_PROFILE_IMPL_COUNTERS_IPP_

#include <cstring>

#include "opkit/base/error.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/base/suggest.hpp"
#include "opkit/profile/counters.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

struct PerfEvent {
  const char* name;
  uint32_t type;  // type and config of perf_event_attr
  uint64_t config;
};
inline constexpr uint32_t kPerfHardware = 0, kPerfSoftware = 1;
inline constexpr PerfEvent kPerfEvents[] = {
    {"cycles", kPerfHardware, 0},           {"instructions", kPerfHardware, 1},
    {"cache_references", kPerfHardware, 2}, {"cache_misses", kPerfHardware, 3},
    {"branches", kPerfHardware, 4},         {"branch_misses", kPerfHardware, 5},
    {"task_clock", kPerfSoftware, 1},       {"page_faults", kPerfSoftware, 2},
    {"context_switches", kPerfSoftware, 3}, {"cpu_migrations", kPerfSoftware, 4},
};

inline const PerfEvent& PerfEventNamed(const std::string& name) {
  std::vector<std::string> known;
  for (const PerfEvent& event : kPerfEvents) {
    if (name == event.name) return event;
    known.push_back(event.name);
  }
  Throw(ErrorCode::kInvalidArgument, "there is no counter '", name, "'", SuggestName(name, known));
}

// Counters with one descriptor each. One call could read a group of counters, but a group counts
// nothing if the processor cannot count all of its members at once.
class PerfThreadCounters final : public ThreadCounters {
 public:
  PerfThreadCounters(const std::vector<std::string>& names, std::vector<std::string>* absent) {
    for (const std::string& name : names) {
      const PerfEvent& event = PerfEventNamed(name);
      files_.push_back(OpenThreadCounter(event.type, event.config));
      if (files_.back() < 0 && absent)
        absent->push_back(StrCat(name, ": ", std::strerror(-files_.back())));
    }
  }
  PerfThreadCounters(const PerfThreadCounters&) = delete;
  ~PerfThreadCounters() override {
    for (const int file : files_)
      if (file >= 0) CloseThreadCounter(file);
  }
  void Read(uint64_t* values) noexcept override {
    for (const int file : files_) *values++ = ReadThreadCounter(file);
  }

 private:
  std::vector<int> files_;  // negative for an absent counter
};

}  // namespace detail

OPKIT_INLINE CounterSource& PerfCounters() {
  struct Perf final : CounterSource {
    std::unique_ptr<ThreadCounters> Open(const std::vector<std::string>& names,
                                         std::vector<std::string>* absent) override {
      return std::make_unique<detail::PerfThreadCounters>(names, absent);
    }
  };
  static Perf perf;
  return perf;
}

}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_COUNTERS_IPP_
