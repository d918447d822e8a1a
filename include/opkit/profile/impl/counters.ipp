// Implements the counters of Linux, by perf_event_open(2).
#ifndef OPKIT_PROFILE_IMPL_COUNTERS_IPP_
#define OPKIT_PROFILE_IMPL_COUNTERS_IPP_

#include <cerrno>
#include <cstdio>
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
  bool in_kernel = false;  // happens in the kernel alone
};
inline constexpr uint32_t kPerfHardware = 0, kPerfSoftware = 1;
inline constexpr PerfEvent kPerfEvents[] = {
    {"cycles", kPerfHardware, 0},
    {"instructions", kPerfHardware, 1},
    {"cache_references", kPerfHardware, 2},
    {"cache_misses", kPerfHardware, 3},
    {"branches", kPerfHardware, 4},
    {"branch_misses", kPerfHardware, 5},
    {"task_clock", kPerfSoftware, 1},
    {"page_faults", kPerfSoftware, 2},
    {"context_switches", kPerfSoftware, 3, true},
    {"cpu_migrations", kPerfSoftware, 4, true},
};

inline const PerfEvent& PerfEventNamed(const std::string& name) {
  std::vector<std::string> known;
  for (const PerfEvent& event : kPerfEvents) {
    if (name == event.name) return event;
    known.push_back(event.name);
  }
  Throw(ErrorCode::kInvalidArgument, "there is no counter '", name, "'", SuggestName(name, known));
}

// Returns the descriptor of a new counter, or -errno.
inline int OpenPerfEvent(const PerfEvent& event, CounterSource::Threads threads) {
  const bool new_threads = threads == CounterSource::Threads::kThisAndNew;
  const bool program_only = new_threads && event.type == kPerfHardware;
  const int file = OpenThreadCounter(event.type, event.config, !program_only, new_threads);
  const bool is_forbidden = file == -EACCES || file == -EPERM;
  if (!is_forbidden || program_only || event.in_kernel) return file;
  return OpenThreadCounter(event.type, event.config, false, new_threads);
}
OPKIT_COLD OPKIT_INLINE std::string WhyNotCounted(int error) {
  std::string out = std::strerror(error);
  if (error == ENOENT || error == ENODEV || error == EOPNOTSUPP)
    return out + " (this processor, or this virtual machine, has no such counter)";
  if (error != EACCES && error != EPERM) return out;
  out += " (this process may not count";
  if (std::FILE* const file = std::fopen("/proc/sys/kernel/perf_event_paranoid", "re")) {
    int paranoid = 0;
    if (std::fscanf(file, "%d", &paranoid) == 1)
      out += StrCat(": /proc/sys/kernel/perf_event_paranoid is ", paranoid,
                    ", up to 2 allows the program's part and up to 1 the kernel's too");
    std::fclose(file);
  }
  return out + "; a container may forbid it too)";
}

// Counters with one descriptor each. One call could read a group of counters, but a group counts
// nothing if the processor cannot count all of its members at once.
class PerfThreadCounters final : public ThreadCounters {
 public:
  PerfThreadCounters(const std::vector<std::string>& names, std::vector<std::string>* absent,
                     CounterSource::Threads threads) {
    for (const std::string& name : names) {
      const PerfEvent& event = PerfEventNamed(name);
      files_.push_back(OpenPerfEvent(event, threads));
      if (files_.back() < 0 && absent)
        absent->push_back(StrCat(name, ": ", WhyNotCounted(-files_.back())));
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
                                         std::vector<std::string>* absent,
                                         CounterSource::Threads threads) override {
      return std::make_unique<detail::PerfThreadCounters>(names, absent, threads);
    }
  };
  static Perf perf;
  return perf;
}

}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_COUNTERS_IPP_
