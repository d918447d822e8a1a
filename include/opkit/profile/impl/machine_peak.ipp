// The loops of MachinePeak, and the threads that run them together.
#ifndef OPKIT_PROFILE_IMPL_MACHINE_PEAK_IPP_
#define OPKIT_PROFILE_IMPL_MACHINE_PEAK_IPP_

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "opkit/base/error.hpp"
#include "opkit/base/index.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/base/strings.hpp"
#include "opkit/profile/machine_peak.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

#if defined(__x86_64__)
#define OPKIT_PEAK_TARGET(name) __attribute__((target(name)))
#else
#define OPKIT_PEAK_TARGET(name)
#endif

// Loops in one width of vectors. MultiplyAdd returns its number of operations; it begins with the
// ten values at `numbers`, so that no compiler takes its chains for one. Arrays are aligned to 64
// bytes, and `floats` is a multiple of 128.
struct PeakLoops {
  double (*multiply_add)(int64_t steps, float* numbers);
  void (*triad)(float* a, const float* b, const float* c, int64_t floats);
  void (*sum)(const float* a, int64_t floats, float* result);
};

// Ten chains of multiply-adds are enough for two units with a latency of four or five cycles, and
// few enough for sixteen registers; eight sums are enough for two loads in a cycle.
#define OPKIT_PEAK_LOOPS(Name, bytes, features)                                        \
  struct PeakLoops##Name {                                                             \
    typedef float Vector __attribute__((vector_size(bytes), may_alias));               \
    static constexpr int64_t kLanes = bytes / 4;                                       \
    OPKIT_PEAK_TARGET(features) static double MultiplyAdd(int64_t steps, float* out) { \
      Vector s0 = {}, s1 = {}, s2 = {}, s3 = {}, s4 = {}, s5 = {}, s6 = {}, s7 = {};   \
      Vector s8 = {}, s9 = {}, scale = {}, add = {};                                   \
      s0 += out[0], s1 += out[1], s2 += out[2], s3 += out[3], s4 += out[4];            \
      s5 += out[5], s6 += out[6], s7 += out[7], s8 += out[8], s9 += out[9];            \
      scale += 0.999f;                                                                 \
      add += 0.001f;                                                                   \
      for (int64_t step = 0; step < steps; ++step) {                                   \
        s0 = s0 * scale + add, s1 = s1 * scale + add, s2 = s2 * scale + add;           \
        s3 = s3 * scale + add, s4 = s4 * scale + add, s5 = s5 * scale + add;           \
        s6 = s6 * scale + add, s7 = s7 * scale + add, s8 = s8 * scale + add;           \
        s9 = s9 * scale + add;                                                         \
      }                                                                                \
      const Vector total = s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7 + s8 + s9;            \
      *out += total[0];                                                                \
      return static_cast<double>(steps) * 10 * kLanes * 2;                             \
    }                                                                                  \
    OPKIT_PEAK_TARGET(features)                                                        \
    static void Triad(float* a, const float* b, const float* c, int64_t floats) {      \
      auto* const x = reinterpret_cast<Vector*>(a);                                    \
      const auto* const y = reinterpret_cast<const Vector*>(b);                        \
      const auto* const z = reinterpret_cast<const Vector*>(c);                        \
      Vector scale = {};                                                               \
      scale += 3;                                                                      \
      for (int64_t i = 0; i < floats / kLanes; i += 4) {                               \
        x[i] = y[i] + scale * z[i];                                                    \
        x[i + 1] = y[i + 1] + scale * z[i + 1];                                        \
        x[i + 2] = y[i + 2] + scale * z[i + 2];                                        \
        x[i + 3] = y[i + 3] + scale * z[i + 3];                                        \
      }                                                                                \
    }                                                                                  \
    OPKIT_PEAK_TARGET(features)                                                        \
    static void Sum(const float* a, int64_t floats, float* out) {                      \
      const auto* x = reinterpret_cast<const Vector*>(a);                              \
      const auto* const end = x + floats / kLanes;                                     \
      Vector s0 = {}, s1 = {}, s2 = {}, s3 = {}, s4 = {}, s5 = {}, s6 = {}, s7 = {};   \
      for (; x != end; x += 8) {                                                       \
        s0 += x[0], s1 += x[1], s2 += x[2], s3 += x[3];                                \
        s4 += x[4], s5 += x[5], s6 += x[6], s7 += x[7];                                \
      }                                                                                \
      const Vector total = s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7;                      \
      *out += total[0];                                                                \
    }                                                                                  \
    static constexpr PeakLoops kLoops = {&MultiplyAdd, &Triad, &Sum};                  \
  };
OPKIT_PEAK_LOOPS(Plain, 16, "sse2")
#if defined(__x86_64__)
OPKIT_PEAK_LOOPS(Avx2, 32, "avx2,fma")
OPKIT_PEAK_LOOPS(Avx512, 64, "avx512f")
#endif
#undef OPKIT_PEAK_LOOPS
#undef OPKIT_PEAK_TARGET

inline PeakLoops PeakLoopsOfMachine() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return PeakLoopsAvx512::kLoops;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return PeakLoopsAvx2::kLoops;
#endif
  return PeakLoopsPlain::kLoops;
}

// The work of a sample on each thread.
struct PeakJob {
  enum Kind : uint8_t { kMultiplyAdd, kTriad, kSum, kEnd };
  Kind kind = kEnd;
  int64_t floats = 0;  // of each of the three arrays
  int64_t repeats = 1;
};

// Runs jobs on several threads at the same time. The caller's thread is one of them.
class PeakThreads {
 public:
  // `floats`: the greatest number of a job's.
  PeakThreads(int threads, int64_t floats, TimingClock& clock)
      : floats_(floats), clock_(clock), workers_(static_cast<size_t>(threads)) {
    for (Worker& worker : workers_) Allocate(worker);
    for (size_t i = 1; i < workers_.size(); ++i) {
      const int error = pthread_create(&workers_[i].thread, nullptr, &Work, &workers_[i]);
      if (error == 0) continue;
      workers_.resize(i);  // keeps the places of the others
      Stop();
      Throw(ErrorCode::kFailedPrecondition, "MachinePeak cannot start ", threads,
            " threads: error ", error);
    }
  }
  PeakThreads(PeakThreads&&) = delete;
  ~PeakThreads() { Stop(); }

  // Runs a job on every thread and returns the amount per second: of bytes, or of operations.
  double Sample(const PeakJob& job) {
    Start(job);
    RunJob(workers_[0]);
    WaitFor(ended_, workers_.size());
    int64_t begin = workers_[0].begin, late = begin, end = workers_[0].end;
    double amount = 0, alone = 0;
    bool left_out = false;
    for (const Worker& worker : workers_) {
      begin = (std::min)(begin, worker.begin);
      late = (std::max)(late, worker.begin);
      end = (std::max)(end, worker.end);
      amount += worker.amount;
      alone = (std::max)(alone, worker.amount / static_cast<double>(worker.end - worker.begin + 1));
      left_out |= worker.preempted || 4 * worker.spin > 5 * worker.least_spin;
    }
    nanoseconds_ = (std::max)(end - begin, int64_t{1});
    left_out |= 10 * (late - begin) > nanoseconds_;  // a thread had no processor at the start
    ++samples_;
    left_out_ += left_out;
    // Together they are no slower than one of them, which shows where another one had to wait.
    return 1e9 * (std::max)(amount / static_cast<double>(nanoseconds_), alone);
  }
  int64_t nanoseconds() const { return nanoseconds_; }  // of the latest sample
  bool disturbed() const { return 2 * left_out_ > samples_; }

 private:
  struct Worker {
    PeakThreads* all = nullptr;
    pthread_t thread{};
    std::unique_ptr<float[]> memory;
    float* arrays[3] = {};
    bool is_written = false;
    int64_t begin = 0, end = 0, spin = 0, least_spin = INT64_MAX;
    double amount = 0;
    bool preempted = false;
    float numbers[10] = {};
  };

  static void* Work(void* worker) {
    auto& self = *static_cast<Worker*>(worker);
    for (size_t job = 1;; ++job) {
      WaitFor(self.all->jobs_, job);
      if (self.all->job_.kind == PeakJob::kEnd) return nullptr;
      self.all->RunJob(self);
    }
  }
  // Waits until `count` is at least `least`. More threads than processors have to take turns, so a
  // thread that waits long gives its processor away.
  static void WaitFor(const std::atomic<size_t>& count, size_t least) {
    for (int spins = 0; count.load(std::memory_order_acquire) < least; ++spins)
      spins < 1000 ? CpuRelax() : static_cast<void>(sched_yield());
  }
  void Start(const PeakJob& job) {
    job_ = job;
    ready_.store(0, std::memory_order_relaxed);
    ended_.store(0, std::memory_order_relaxed);
    jobs_.fetch_add(1, std::memory_order_release);  // publishes the three
  }
  void Stop() {
    Start({});
    for (size_t i = 1; i < workers_.size(); ++i) pthread_join(workers_[i].thread, nullptr);
  }

  void RunJob(Worker& self) {
    // The thread that uses the memory writes it first, so that it lies near.
    if (!self.is_written)
      for (float* array : self.arrays) std::fill_n(array, floats_, 1.0f);
    self.is_written = true;
    self.spin = clock_.Spin();
    self.least_spin = (std::min)(self.least_spin, self.spin);
    ready_.fetch_add(1, std::memory_order_acq_rel);
    WaitFor(ready_, workers_.size());
    const int64_t preemptions = clock_.Preemptions();
    self.begin = clock_.Now();
    self.amount = RunLoops(self);
    self.end = clock_.Now();
    self.preempted = clock_.Preemptions() != preemptions;
    ended_.fetch_add(1, std::memory_order_release);
  }
  double RunLoops(Worker& self) {
    const auto [a, b, c] = self.arrays;
    const double moved = 4.0 * static_cast<double>(job_.floats * job_.repeats);
    if (job_.kind == PeakJob::kMultiplyAdd)
      return loops_.multiply_add(1000 * job_.repeats, self.numbers);
    for (int64_t i = 0; i < job_.repeats; ++i) {
      if (job_.kind == PeakJob::kTriad)
        loops_.triad(a, b, c, job_.floats);
      else
        for (const float* array : self.arrays) loops_.sum(array, job_.floats, self.numbers);
      asm volatile("" : : "r"(a) : "memory");  // the next round computes it again
    }
    return 3 * moved;
  }
  void Allocate(Worker& worker) {
    constexpr int64_t kLine = 16, kApart = 10 * kLine;  // floats; keeps arrays in different sets
    worker.all = this;
    worker.memory.reset(new float[Index(3 * (floats_ + kApart) + kLine)]);
    const auto address = reinterpret_cast<uintptr_t>(worker.memory.get());
    float* const first = worker.memory.get() + (64 - address % 64) % 64 / sizeof(float);
    for (int i = 0; i < 3; ++i) worker.arrays[i] = first + i * (floats_ + kApart);
  }

  const PeakLoops loops_ = PeakLoopsOfMachine();
  const int64_t floats_;
  TimingClock& clock_;
  std::vector<Worker> workers_;
  PeakJob job_;
  std::atomic<size_t> jobs_{0}, ready_{0}, ended_{0};
  int64_t nanoseconds_ = 0, samples_ = 0, left_out_ = 0;
};

// Measures the ceilings of a machine one after the other.
class PeakMeter {
 public:
  PeakMeter(int threads, const MachinePeakOptions& options)
      : options_(options), clock_(options.clock ? *options.clock : machine_) {
    rates_.threads = threads;
    CpuCache caches[kMostCpuCaches];
    const int count = CpuCaches(caches), cpus = AvailableCpus();
    for (int i = 0; i < count; ++i) {
      // Threads spread over the processors, so that each has a cache for itself while there are
      // enough of them.
      const int used = (std::min)(threads, (std::max)(1, cpus / caches[i].shared_by));
      const double capacity = static_cast<double>(caches[i].bytes) * used;
      if (!rates_.caches.empty() && capacity <= rates_.caches.back().capacity) continue;
      rates_.caches.push_back({StrCat("L", caches[i].level), capacity, 0});
    }
  }

  MachineRates Measure() {
    const double last = rates_.caches.empty() ? static_cast<double>(LastCacheBytes())
                                              : rates_.caches.back().capacity;
    constexpr double kLeast = 24 << 20;
    const double most =
        (std::min)((std::max)(3 * last, kLeast * rates_.threads), options_.most_bytes);
    PeakThreads threads(rates_.threads, FloatsOf(most), clock_);
    const auto measured = static_cast<double>(1 + 2 * (rates_.caches.size() + 1));
    nanoseconds_ = 1e9 * options_.seconds / measured;
    rates_.flops = Best(threads, {PeakJob::kMultiplyAdd});
    rates_.bytes = Bandwidth(threads, most);
    double larger = rates_.bytes;
    for (size_t i = rates_.caches.size(); i-- > 0;) {
      CacheCeiling& cache = rates_.caches[i];
      // Half of the level, but more than the level below it holds.
      const double below = i > 0 ? rates_.caches[i - 1].capacity : 0;
      const double half = cache.capacity / 2;
      const double filled = half > below ? half : (below + cache.capacity) / 2;
      // Data flows no slower from a smaller level than from a larger one.
      cache.bytes_per_second = larger =
          (std::max)(larger, Bandwidth(threads, (std::min)(filled, most)));
    }
    rates_.disturbed = threads.disturbed();
    return rates_;
  }

 private:
  // The length of each thread's three arrays, if all of them take `bytes`.
  int64_t FloatsOf(double bytes) const {
    const auto floats = static_cast<int64_t>(bytes / (12.0 * rates_.threads));
    return (std::max)(floats / 128 * 128, int64_t{128});
  }
  double Bandwidth(PeakThreads& threads, double bytes) const {
    const int64_t floats = FloatsOf(bytes);
    return (std::max)(Best(threads, {PeakJob::kTriad, floats}),
                      Best(threads, {PeakJob::kSum, floats}));
  }
  double Best(PeakThreads& threads, PeakJob job) const {
    constexpr int64_t kSampleNs = 500'000;
    const int64_t begin = clock_.Now();
    threads.Sample(job);  // fills the caches
    threads.Sample(job);
    job.repeats = (std::min)(kSampleNs / threads.nanoseconds() + 1, int64_t{1'000'000});
    double best = 0;
    for (int round = 0; round < 1000; ++round) {
      if (round >= 3 && static_cast<double>(clock_.Now() - begin) >= nanoseconds_) break;
      best = (std::max)(best, threads.Sample(job));
    }
    return best;
  }

  const MachinePeakOptions& options_;
  TimingClock machine_, &clock_;
  MachineRates rates_;
  double nanoseconds_ = 0;  // for each rate
};

}  // namespace detail

OPKIT_COLD OPKIT_INLINE MachineRates MachinePeak(int threads, const MachinePeakOptions& options) {
  if (threads < 1 || !(options.seconds > 0))
    Throw(ErrorCode::kInvalidArgument, "MachinePeak of ", threads, " threads in ", options.seconds,
          " seconds; expected 1 or more threads, and a time above 0");
  return detail::PeakMeter(threads, options).Measure();
}

}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_MACHINE_PEAK_IPP_
