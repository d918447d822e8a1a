// The definitions of opkit/base/platform.hpp.
#ifndef OPKIT_BASE_IMPL_PLATFORM_IPP_
#define OPKIT_BASE_IMPL_PLATFORM_IPP_

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "opkit/base/platform.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE bool Parker::Wait(int64_t deadline_ns) {
  const timespec deadline{static_cast<time_t>(deadline_ns / 1'000'000'000),
                          static_cast<long>(deadline_ns % 1'000'000'000)};
  while (signalled_.load(std::memory_order_acquire) == 0) {
    // The kernel compares the word with 0 again before it sleeps, so a Set() in between is not
    // lost.
    const long rc = syscall(SYS_futex, &signalled_, FUTEX_WAIT_BITSET_PRIVATE, 0,
                            deadline_ns < 0 ? nullptr : &deadline, nullptr, FUTEX_BITSET_MATCH_ANY);
    if (rc != 0 && errno == ETIMEDOUT) return signalled_.load(std::memory_order_acquire) != 0;
  }
  return true;
}

OPKIT_INLINE int64_t ThreadPreemptions() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

OPKIT_INLINE int64_t UnixMs() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

OPKIT_INLINE int64_t LastCacheBytes() {
  const int64_t bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return bytes > 0 ? bytes : int64_t{32} << 20;
}

// Reads the first bytes of a small file; an empty text if there is no such file.
template <size_t kSize>
void ReadSmallFile(const char* path, char (&text)[kSize]) {
  text[0] = 0;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  const ssize_t length = read(file, text, kSize - 1);
  text[length > 0 ? length : 0] = 0;
  close(file);
}
// Counts the processors in a list such as "0-3,8,10-11".
inline int CountCpusIn(const char* list) {
  int count = 0;
  while (*list >= '0' && *list <= '9') {
    char* end;
    const long first = std::strtol(list, &end, 10);
    const long last = *end == '-' ? std::strtol(end + 1, &end, 10) : first;
    count += static_cast<int>(last - first) + 1;
    list = *end == ',' ? end + 1 : end;
  }
  return count;
}

OPKIT_INLINE int CpuCaches(CpuCache (&caches)[kMostCpuCaches]) {
  int count = 0;
  for (int index = 0; index < 8 && count < kMostCpuCaches; ++index) {
    char path[80], text[256];
    const auto fact = [&](const char* name) {
      std::snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index,
                    name);
      ReadSmallFile(path, text);
      return text;
    };
    CpuCache cache;
    cache.level = std::atoi(fact("level"));
    if (cache.level <= 0) break;
    if (fact("type")[0] == 'I') continue;  // instructions
    char* unit;
    cache.bytes = std::strtol(fact("size"), &unit, 10);
    if (*unit == 'K') cache.bytes <<= 10;
    if (*unit == 'M') cache.bytes <<= 20;
    const int shared = CountCpusIn(fact("shared_cpu_list"));
    cache.shared_by = shared > 0 ? shared : 1;
    if (cache.bytes > 0) caches[count++] = cache;
  }
  if (count > 0) return count;
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  for (int level = 1; level <= 3; ++level) {
    const long bytes = sysconf(level == 1   ? _SC_LEVEL1_DCACHE_SIZE
                               : level == 2 ? _SC_LEVEL2_CACHE_SIZE
                                            : _SC_LEVEL3_CACHE_SIZE);
    if (bytes > 0)
      caches[count++] = {level, bytes, level == 3 && online > 0 ? static_cast<int>(online) : 1};
  }
  return count;
}

OPKIT_INLINE int AvailableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
  const long online = sysconf(_SC_NPROCESSORS_ONLN);  // more CPUs than cpu_set_t holds
  return online > 0 ? static_cast<int>(online) : 1;
}

OPKIT_INLINE void CpuBan::Ban(int cpu) {
  const auto thread = static_cast<pid_t>(thread_);
  if (sched_getaffinity(thread, sizeof allowed_, &allowed_) != 0) return;
  cpu_set_t others = allowed_;
  CPU_CLR(static_cast<size_t>(cpu), &others);
  if (CPU_COUNT(&others) == 0) return;
  banned_ = sched_setaffinity(thread, sizeof others, &others) == 0;
}

OPKIT_INLINE void CpuBan::Lift() { sched_setaffinity(0, sizeof allowed_, &allowed_); }

OPKIT_INLINE void PinCurrentThread(int index) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) == 0) return;
  int skip = index % CPU_COUNT(&allowed);
  for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || skip-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    return;
  }
}

// The stack of one thread for signal handlers, freed when the thread ends.
class SignalStack {
 public:
  SignalStack() {
    stack_t now = {};
    if (sigaltstack(nullptr, &now) != 0 || !(now.ss_flags & SS_DISABLE)) return;
    void* const memory =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    stack_t own = {};
    own.ss_sp = memory;
    own.ss_size = kBytes;
    if (sigaltstack(&own, nullptr) == 0)
      memory_ = memory;
    else
      munmap(memory, kBytes);
  }
  SignalStack(const SignalStack&) = delete;
  ~SignalStack() {
    if (!memory_) return;
    stack_t now = {}, none = {};
    none.ss_flags = SS_DISABLE;
    const bool is_own = sigaltstack(nullptr, &now) == 0 && now.ss_sp == memory_;
    if (!is_own || sigaltstack(&none, nullptr) == 0) munmap(memory_, kBytes);
  }

 private:
  static constexpr size_t kBytes = 64 << 10;  // enough for a program's own handlers too
  void* memory_ = nullptr;
};
OPKIT_INLINE void MakeSignalStack() {
  static thread_local const SignalStack stack;
  static_cast<void>(stack);
}

OPKIT_INLINE void SetCurrentThreadName(const char* name) {
  char shortened[16] = {};
  for (int i = 0; i < 15 && name[i] != '\0'; ++i) shortened[i] = name[i];
  pthread_setname_np(pthread_self(), shortened);
}

OPKIT_INLINE void GetCurrentThreadName(char (&name)[16]) {
  if (pthread_getname_np(pthread_self(), name, sizeof name) != 0) name[0] = 0;
}

OPKIT_INLINE size_t ReadStartOfFile(const char* path, char* to, size_t room) {
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return 0;
  size_t size = 0;
  while (size < room) {
    const ssize_t got = read(file, to + size, room - size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    size += static_cast<size_t>(got);
  }
  close(file);
  return size;
}

OPKIT_INLINE FileMapping MapFileForReading(const char* path) {
  FileMapping out;
  // Without O_NONBLOCK opening a pipe would wait for its writer.
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status;
  if (file < 0 || fstat(file, &status) != 0) {
    out.error = errno;
  } else if (S_ISREG(status.st_mode)) {
    out.is_file = true;
    out.size = static_cast<size_t>(status.st_size);
    if (out.size > 0) out.data = mmap(nullptr, out.size, PROT_READ, MAP_PRIVATE, file, 0);
    if (out.data == MAP_FAILED) out = {nullptr, 0, errno, true};
  }
  if (file >= 0) close(file);
  return out;
}

OPKIT_INLINE void ForgetMapped(const void* data, size_t size) {
  constexpr uintptr_t kPage = 65536;  // at least a system page; a smaller range is not worth a call
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + kPage - 1) & ~(kPage - 1);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + size) & ~(kPage - 1);
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

OPKIT_INLINE int OpenThreadCounter(uint32_t type, uint64_t config, bool kernel, bool new_threads) {
  // The first version of perf_event_attr (PERF_ATTR_SIZE_VER0); its header would bring 200 macros.
  struct {
    uint32_t type, size;
    uint64_t config, sample_period, sample_type, read_format, flags;
    uint32_t wakeup_events, breakpoint_type;
    uint64_t config1;
  } wanted = {};
  constexpr uint64_t kTimeEnabled = 1, kTimeRunning = 2;
  constexpr uint64_t kInherit = 1 << 1, kExcludeKernel = 1 << 5;
  constexpr int kThisThread = 0, kAnyCpu = -1, kNoGroup = -1;
  constexpr unsigned long kCloseOnExec = 8;
  static_assert(sizeof wanted == 64);
  wanted.type = type;
  wanted.size = sizeof wanted;
  wanted.config = config;
  wanted.read_format = kTimeEnabled | kTimeRunning;
  wanted.flags = (new_threads ? kInherit : 0) | (kernel ? 0 : kExcludeKernel);
  const long file =
      syscall(SYS_perf_event_open, &wanted, kThisThread, kAnyCpu, kNoGroup, kCloseOnExec);
  return file >= 0 ? static_cast<int>(file) : -errno;
}

OPKIT_INLINE uint64_t ReadThreadCounter(int file) {
  struct {
    uint64_t value, enabled, running;
  } now = {};
  if (file < 0 || read(file, &now, sizeof now) != sizeof now || now.running == 0) return 0;
  if (now.enabled == now.running) return now.value;
  return static_cast<uint64_t>(static_cast<double>(now.value) * static_cast<double>(now.enabled) /
                               static_cast<double>(now.running));
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_IMPL_PLATFORM_IPP_
