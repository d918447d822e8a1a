// The services of the operating system and the processor that the toolkit uses: a mutex and a
// Parker that survive fork, thread names, affinity, a cheap clock, performance counters, files as
// memory. All of it is POSIX and Linux; a port to another system replaces this header.
//
// pthread and futex are used directly because the standard's types cannot be abandoned in a forked
// child: a std::thread there cannot be joined or destroyed, a locked std::mutex cannot be reset,
// and destroying a condition variable waits for waiters that no longer exist.
#ifndef OPKIT_BASE_PLATFORM_HPP_
#define OPKIT_BASE_PLATFORM_HPP_

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline constexpr size_t kCacheLine = 64;

// A mutex for sections of a few instructions. A thread that has to wait spins briefly before it
// sleeps in the kernel.
class Mutex {
 public:
  constexpr Mutex() = default;
  Mutex(Mutex&&) = delete;
  void Lock() { pthread_mutex_lock(&mutex_); }
  void Unlock() { pthread_mutex_unlock(&mutex_); }
  // Unlocks the mutex in a forked child, where the thread that held it may not exist.
  void ResetAfterFork() { mutex_ = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP; }

 private:
  pthread_mutex_t mutex_ = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
};

// Holds a lock from its construction to the end of its scope.
template <class Lock>
class LockGuard {
 public:
  explicit LockGuard(Lock& lock) : lock_(lock) { lock_.Lock(); }
  LockGuard(LockGuard&&) = delete;
  ~LockGuard() { lock_.Unlock(); }

 private:
  Lock& lock_;
};
using MutexLock = LockGuard<Mutex>;

inline int64_t MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Reads a counter for spans of microseconds on one thread; costs about 10 ns. Cycles on x86, ns
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

// A place where one thread sleeps until another thread signals it; lives on the sleeper's stack.
// Set() and Wake() are separate: the signaller calls Set() under the lock of the list that holds
// the sleeper, and Wake(), a system call, after unlocking. The Parker may be destroyed once Set()
// is done, so Wake() uses only its address.
class Parker {
 public:
  using Address = const void*;

  // Release pairs with the acquire in Wait: the woken thread sees the signaller's writes.
  Address Set() {
    signalled_.store(1, std::memory_order_release);
    return &signalled_;
  }
  static void Wake(Address address) {
    syscall(SYS_futex, address, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }

  // Sleeps until Set() and returns true; returns false once `deadline_ns` has passed. The deadline
  // is on the clock of MonotonicNs; a negative value means no deadline.
  bool Wait(int64_t deadline_ns = -1);

 private:
  static_assert(sizeof(std::atomic<uint32_t>) == 4, "a futex is a 32-bit word");
  std::atomic<uint32_t> signalled_{0};
};

// Returns the system's number of the calling thread, which traces and debuggers show.
inline int64_t CurrentThreadId() { return syscall(SYS_gettid); }

// Counts the CPUs that the calling thread may run on; at least 1.
int AvailableCpus();

// Calls visit(cpu), in rising order, for each CPU that the calling thread may run on; for none if
// the system has more CPUs than a cpu_set_t.
template <class F>
void VisitAvailableCpus(F&& visit) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(static_cast<size_t>(cpu), &set)) visit(cpu);
}

// Returns the CPU that the calling thread runs on now.
inline int CurrentCpu() { return sched_getcpu(); }

// Keeps a sleeping thread off one CPU until it has woken. Linux tends to wake a thread on the
// waker's CPU. There the thread waits for milliseconds if the waker goes on running. Created and
// destroyed by the sleeping thread.
class CpuBan {
 public:
  CpuBan() = default;
  CpuBan(CpuBan&&) = delete;
  ~CpuBan() {
    if (banned_) Lift();
  }

  // Bans `cpu`; another thread calls it, once. Does nothing if the sleeper may run on no other CPU.
  void Ban(int cpu);

 private:
  void Lift();

  const int64_t thread_ = CurrentThreadId();
  bool banned_ = false;
  cpu_set_t allowed_;  // the CPUs before the ban, if banned_
};

// Pins the calling thread to the `index`-th CPU that it may run on (modulo the number of these
// CPUs).
void PinCurrentThread(int index);

// Sets the name that ps, top and gdb show; the system keeps the first 15 characters.
void SetCurrentThreadName(const char* name);
void GetCurrentThreadName(char (&name)[16]);

// Gives the calling thread a stack for signal handlers (sigaltstack), unless it has one already. A
// handler needs this stack after an overflow of the thread's own stack. Freed when the thread ends.
void MakeSignalStack();

// Starts a Linux counter on the calling thread and returns its descriptor, or -errno. `type` and
// `config` are those of perf_event_open(2). With `kernel`, counts what happens in the kernel
// too, which the system may forbid. With `new_threads`, counts also on the threads that this thread
// starts from now on, and on theirs.
int OpenThreadCounter(uint32_t type, uint64_t config, bool kernel, bool new_threads);
// Returns the present count; 0 if the counter cannot be read. The count is scaled up if several
// counters had to share one of the processor's counters.
uint64_t ReadThreadCounter(int file);
inline void CloseThreadCounter(int file) { close(file); }

// Returns how often the system has taken the processor away from the calling thread so far, though
// the thread had work (involuntary context switches).
int64_t ThreadPreemptions();
// Returns the milliseconds since 1970, by a clock that may be set back.
int64_t UnixMs();
// Returns the size in bytes of the processor's last cache; 32 MiB if the system does not know it.
int64_t LastCacheBytes();

// Reads up to `room` bytes from the start of a file, which may be one of /proc and have no size.
// Returns the number of bytes; 0 for a file that cannot be read.
size_t ReadStartOfFile(const char* path, char* to, size_t room);
// A cache of the processor that holds data.
struct CpuCache {
  int level = 0;  // 1 is the nearest to the core
  int64_t bytes = 0;
  int shared_by = 1;  // processors that share it
};
constexpr int kMostCpuCaches = 4;
// Fills `caches` from the smallest level on and returns their number; 0 if the system does not know
// them.
int CpuCaches(CpuCache (&caches)[kMostCpuCaches]);

// A file mapped into memory for reading. MapFile of interop/mapped_file.hpp owns a mapping.
struct FileMapping {
  void* data = nullptr;  // null also for an empty file
  size_t size = 0;
  int error = 0;         // errno if it could not be opened or mapped
  bool is_file = false;  // a regular file: no folder, pipe or device
};
FileMapping MapFileForReading(const char* path);
inline void UnmapFile(void* data, size_t size) { munmap(data, size); }
// Releases the whole pages inside the range, for bytes that are not needed soon; the next read
// loads them from the file again.
void ForgetMapped(const void* data, size_t size);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/base/impl/platform.ipp"
#endif

#endif  // OPKIT_BASE_PLATFORM_HPP_
