// What the toolkit asks of the operating system and the processor: for its threads a mutex and a
// parking place that survive fork, thread start, names, affinity, a cheap clock; files as memory.
// All of it is POSIX and Linux; another system is another version of this header.
//
// pthread and futex are used bare because the standard's types cannot be given up in a forked
// child: a std::thread there cannot be joined or destroyed, a locked std::mutex cannot be reset,
// and destroying a condition variable waits for waiters that no longer exist.
#ifndef OPKIT_BASE_PLATFORM_HPP_
#define OPKIT_BASE_PLATFORM_HPP_

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "opkit/config.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

inline constexpr size_t kCacheLine = 64;

// For sections of a few instructions: who finds it locked spins briefly before the system call.
class Mutex {
 public:
  constexpr Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  void Lock() { pthread_mutex_lock(&mutex_); }
  void Unlock() { pthread_mutex_unlock(&mutex_); }
  // In a forked child, where the thread that held it may not exist.
  void ResetAfterFork() { mutex_ = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP; }

 private:
  pthread_mutex_t mutex_ = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
};

class MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) : mutex_(mutex) { mutex_.Lock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  ~MutexLock() { mutex_.Unlock(); }

 private:
  Mutex& mutex_;
};

inline int64_t MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// A counter for spans of microseconds on one thread, about 10 ns to read: cycles on x86, ns
// elsewhere, so one tick is between 0.2 and 1 ns.
inline uint64_t Ticks() {
#if defined(__x86_64__) || defined(__i386__)
  return __builtin_ia32_rdtsc();
#else
  return static_cast<uint64_t>(MonotonicNs());
#endif
}

inline void CpuRelax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // `yield` is a no-op on most cores
#endif
}

// Where one thread sleeps until it is signalled; lives on that thread's stack. Set() and Wake() are
// apart so that Set() can happen under the lock of the list which the sleeper is found in (from
// then on the sleeper may be gone) and the system call after it: Wake() uses the address alone.
class Parker {
 public:
  using Address = const void*;

  // Release, with the acquire in Wait: what the signaller did is seen by the thread it woke.
  Address Set() {
    signalled_.store(1, std::memory_order_release);
    return &signalled_;
  }
  static void Wake(Address address) {
    syscall(SYS_futex, address, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }

  // `deadline_ns` as MonotonicNs counts, or negative for none; false when it has passed.
  bool Wait(int64_t deadline_ns = -1) {
    const timespec deadline{static_cast<time_t>(deadline_ns / 1'000'000'000),
                            static_cast<long>(deadline_ns % 1'000'000'000)};
    while (signalled_.load(std::memory_order_acquire) == 0) {
      // The kernel compares the word with 0 again before it sleeps, so a Set() in between is not
      // lost.
      const long rc =
          syscall(SYS_futex, &signalled_, FUTEX_WAIT_BITSET_PRIVATE, 0,
                  deadline_ns < 0 ? nullptr : &deadline, nullptr, FUTEX_BITSET_MATCH_ANY);
      if (rc != 0 && errno == ETIMEDOUT) return signalled_.load(std::memory_order_acquire) != 0;
    }
    return true;
  }

 private:
  static_assert(sizeof(std::atomic<uint32_t>) == 4, "a futex is a 32-bit word");
  std::atomic<uint32_t> signalled_{0};
};

// CPUs that this process may run on, at least 1.
inline int AvailableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
  const long online = sysconf(_SC_NPROCESSORS_ONLN);  // more CPUs than the set has room for
  return online > 0 ? static_cast<int>(online) : 1;
}

// Pins the calling thread to the `index`-th (modulo their number) of the CPUs it may run on.
inline void PinCurrentThread(int index) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) == 0) return;
  int skip = index % CPU_COUNT(&allowed);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || skip-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    return;
  }
}

// As ps, top and gdb show it; the system keeps the first 15 characters.
inline void SetCurrentThreadName(const char* name) {
  char shortened[16] = {};
  for (int i = 0; i < 15 && name[i] != '\0'; ++i) shortened[i] = name[i];
  pthread_setname_np(pthread_self(), shortened);
}

// A file's bytes as memory that is only read. MapFile of interop/mapped_file.hpp owns one.
struct FileMapping {
  void* data = nullptr;  // also for an empty file
  size_t size = 0;
  int error = 0;         // errno, when it could not be opened or mapped
  bool is_file = false;  // and not a folder, pipe or device
};
inline FileMapping MapFileForReading(const char* path) {
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
inline void UnmapFile(void* data, size_t size) { munmap(data, size); }
// Lets go of whole pages that were read and will not be soon: they come back from the file.
inline void ForgetMapped(const void* data, size_t size) {
  constexpr uintptr_t kPage = 65536;  // at least the system's, and not worth a call below
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + kPage - 1) & ~(kPage - 1);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + size) & ~(kPage - 1);
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_BASE_PLATFORM_HPP_
