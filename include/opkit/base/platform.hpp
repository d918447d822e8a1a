// The services of the operating system and the processor that the toolkit uses: for its threads a
// mutex and a parking place that survive fork, thread start, names, affinity, a cheap clock; files
// as memory. All of it is POSIX and Linux; another system is another version of this header.
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

// For sections of a few instructions: a thread that finds it locked spins briefly before the system
// call.
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
  bool Wait(int64_t deadline_ns = -1);

 private:
  static_assert(sizeof(std::atomic<uint32_t>) == 4, "a futex is a 32-bit word");
  std::atomic<uint32_t> signalled_{0};
};

// The system's number of the calling thread, which traces and debuggers show.
inline int64_t CurrentThreadId() { return syscall(SYS_gettid); }

// CPUs that this process may run on, at least 1.
int AvailableCpus();

// The CPU that the calling thread runs on now.
inline int CurrentCpu() { return sched_getcpu(); }

// Keeps a sleeping thread off one CPU until it has woken. Linux likes to wake a thread on the CPU
// of the thread that wakes it, and there it waits for its turn, milliseconds where that one goes
// on. Made and destroyed by the thread that sleeps.
class CpuBan {
 public:
  CpuBan() = default;
  CpuBan(const CpuBan&) = delete;
  CpuBan& operator=(const CpuBan&) = delete;
  ~CpuBan() {
    if (banned_) Lift();
  }

  // By another thread, once; nothing if the thread may run on this CPU alone.
  void Ban(int cpu);

 private:
  void Lift();

  const int64_t thread_ = CurrentThreadId();
  bool banned_ = false;
  cpu_set_t allowed_;  // before, if so
};

// Pins the calling thread to the `index`-th (modulo their number) of the CPUs it may run on.
void PinCurrentThread(int index);

// As ps, top and gdb show it; the system keeps the first 15 characters.
void SetCurrentThreadName(const char* name);
void GetCurrentThreadName(char (&name)[16]);

// Gives the calling thread, until it ends, a stack for signal handlers, if it has none: where its
// own has overflown there is no room for one.
void MakeSignalStack();

// What Linux counts on the calling thread from now on: `type` and `config` are those of
// perf_event_open(2). A descriptor, or -errno.
int OpenThreadCounter(uint32_t type, uint64_t config);
// The number until now; scaled, where the processor counted by turns. 0 where it is not to be had.
uint64_t ReadThreadCounter(int file);
inline void CloseThreadCounter(int file) { close(file); }

// A file's bytes as memory that is only read. MapFile of interop/mapped_file.hpp owns one.
struct FileMapping {
  void* data = nullptr;  // also for an empty file
  size_t size = 0;
  int error = 0;         // errno, when it could not be opened or mapped
  bool is_file = false;  // and not a folder, pipe or device
};
FileMapping MapFileForReading(const char* path);
inline void UnmapFile(void* data, size_t size) { munmap(data, size); }
// Lets go of whole pages that were read and will not be soon: they come back from the file.
void ForgetMapped(const void* data, size_t size);

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/base/impl/platform.ipp"
#endif

#endif  // OPKIT_BASE_PLATFORM_HPP_
