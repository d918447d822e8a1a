// The loops of MachinePeak.
#ifndef OPKIT_PROFILE_IMPL_MACHINE_PEAK_IPP_
#define OPKIT_PROFILE_IMPL_MACHINE_PEAK_IPP_

#include <memory>
#include <vector>

#include "opkit/base/error.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/profile/machine_peak.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

#if defined(__x86_64__)
#define OPKIT_PEAK_TARGET(name) __attribute__((target(name)))
#else
#define OPKIT_PEAK_TARGET(name)
#endif

// Defines a function that runs `steps` rounds of multiply-adds and returns its number of
// operations. Ten chains are enough for two units with a latency of four or five cycles, and few
// enough for sixteen registers.
#define OPKIT_PEAK_LOOP(name, bytes, features)                                   \
  OPKIT_PEAK_TARGET(features) inline double name(int64_t steps, float* result) { \
    typedef float Vector __attribute__((vector_size(bytes)));                    \
    constexpr int kChains = 10;                                                  \
    Vector sums[kChains] = {}, scale = {}, add = {};                             \
    scale += 0.999f;                                                             \
    add += 0.001f;                                                               \
    for (int64_t step = 0; step < steps; ++step)                                 \
      for (Vector & sum : sums) sum = sum * scale + add;                         \
    for (const Vector& sum : sums) *result += sum[0];                            \
    return static_cast<double>(steps) * kChains * (bytes / 4) * 2;               \
  }
OPKIT_PEAK_LOOP(MultiplyAddPlain, 16, "sse2")
#if defined(__x86_64__)
OPKIT_PEAK_LOOP(MultiplyAddAvx2, 32, "avx2,fma")
OPKIT_PEAK_LOOP(MultiplyAddAvx512, 64, "avx512f")
#endif
#undef OPKIT_PEAK_LOOP
#undef OPKIT_PEAK_TARGET

inline auto MultiplyAddOfMachine() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return &MultiplyAddAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &MultiplyAddAvx2;
#endif
  return &MultiplyAddPlain;
}

// Calls work() `rounds` times and returns the largest rate per second of the amounts that it
// returns.
template <class Work>
double LargestRate(int rounds, Work work) {
  double largest = 0;
  for (int round = 0; round < rounds; ++round) {
    const int64_t begin = MonotonicNs();
    const double amount = work();
    const double rate = amount * 1e9 / static_cast<double>(MonotonicNs() - begin);
    if (rate > largest) largest = rate;
  }
  return largest;
}

inline MachineRates PeakOfThread() {
  constexpr int64_t kSteps = 200'000;
  constexpr int64_t kFloats = int64_t{8} << 20;  // 32 MiB for each array
  MachineRates rates;
  float sink = 0;
  const auto multiply_add = MultiplyAddOfMachine();
  rates.flops = LargestRate(20, [&] { return multiply_add(kSteps, &sink); });
  const std::unique_ptr<float[]> a(new float[kFloats]), b(new float[kFloats]),
      c(new float[kFloats]);
  for (int64_t i = 0; i < kFloats; ++i) a[i] = 0, b[i] = 1, c[i] = 2;
  rates.bytes = LargestRate(5, [&, x = a.get(), y = b.get(), z = c.get()] {
    for (int64_t i = 0; i < kFloats; ++i) x[i] = y[i] + 3 * z[i];
    asm volatile("" : : "r"(x), "r"(&sink) : "memory");
    return 3.0 * sizeof(float) * kFloats;
  });
  return rates;
}

// Measures on a thread of its own, or on the caller's if no thread can be started.
class PeakThread {
 public:
  void Start() { started_ = pthread_create(&thread_, nullptr, &Run, this) == 0; }
  MachineRates Join() {
    if (started_)
      pthread_join(thread_, nullptr);
    else
      rates_ = PeakOfThread();
    return rates_;
  }

 private:
  static void* Run(void* self) {
    static_cast<PeakThread*>(self)->rates_ = PeakOfThread();
    return nullptr;
  }

  pthread_t thread_{};
  bool started_ = false;
  MachineRates rates_;
};

}  // namespace detail

OPKIT_INLINE MachineRates MachinePeak(int threads) {
  if (threads < 1)
    Throw(ErrorCode::kInvalidArgument, "MachinePeak of ", threads, " threads; expected 1 or more");
  std::vector<detail::PeakThread> all(static_cast<size_t>(threads));
  for (detail::PeakThread& one : all) one.Start();
  MachineRates sum;
  for (detail::PeakThread& one : all) {
    const MachineRates rates = one.Join();
    sum.flops += rates.flops;
    sum.bytes += rates.bytes;
  }
  return sum;
}

}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_MACHINE_PEAK_IPP_
