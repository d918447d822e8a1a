// QuantizeLoops: the innermost loops between float32 and 8-bit integers, for several kinds of
// machine. QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear use them.
#ifndef OPKIT_OPS_QUANTIZED_QUANTIZE_LOOPS_HPP_
#define OPKIT_OPS_QUANTIZED_QUANTIZE_LOOPS_HPP_

#include <algorithm>
#include <vector>

#include "opkit/ops/quantized/quantization.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The scales and zero points of elements. With a scale_step of 1 each element has its own scale,
// with 0 each run of neighbouring elements. A zero_step of 0 means one zero point for all scales.
template <class T>
struct ByteScales {
  const float* scales;
  const T* zeros;
  int64_t scale_step, zero_step;
};

// The least and the largest of numbers and 0. NaN is passed over.
struct FloatLimits {
  float low = 0, high = 0;

  OPKIT_HOST_DEVICE void Add(const FloatLimits& other) {
    low = (std::min)(low, other.low);
    high = (std::max)(high, other.high);
  }
  OPKIT_HOST_DEVICE void Add(float number) {
    low = number < low ? number : low;
    high = number > high ? number : high;
  }
};

// The loops, for T int8_t or uint8_t, over `runs` runs of n elements. `quantize` stores
// Quantize<T>(x / scale, zero), `dequantize` (x - zero) * scale. y must not overlap the other
// arguments.
template <class T>
struct QuantizeLoops {
  void (*quantize)(const float* x, const ByteScales<T>& by, int64_t runs, int64_t n, T* y);
  void (*dequantize)(const T* x, const ByteScales<T>& by, int64_t runs, int64_t n, float* y);
  FloatLimits (*limits)(const float* x, int64_t n);
};

// The bodies of the loops are inlined into a function for each kind of machine, and the compiler
// makes vector code of them there.
#define OPKIT_QUANTIZE_BODY __attribute__((always_inline)) inline

template <class T>
OPKIT_QUANTIZE_BODY void QuantizeBytes(const float* x, const ByteScales<T>& by, int64_t runs,
                                       int64_t n, T* __restrict y) {
  const float* scales = by.scales;
  const T* zeros = by.zeros;
  const int64_t zero_step = by.zero_step;
  if (by.scale_step == 0) {
    for (int64_t run = 0; run < runs; ++run, x += n, y += n) {
      const float scale = scales[run], zero = zeros[run * zero_step];
      for (int64_t i = 0; i < n; ++i) y[i] = Quantize<T>(x[i] / scale, zero);
    }
  } else if (zero_step == 0) {
    const float zero = *zeros;
    for (int64_t i = 0; i < n; ++i) y[i] = Quantize<T>(x[i] / scales[i], zero);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = Quantize<T>(x[i] / scales[i], zeros[i]);
  }
}

template <class T>
OPKIT_QUANTIZE_BODY void DequantizeBytes(const T* x, const ByteScales<T>& by, int64_t runs,
                                         int64_t n, float* __restrict y) {
  const float* scales = by.scales;
  const T* zeros = by.zeros;
  const int64_t zero_step = by.zero_step;
  if (by.scale_step == 0) {
    for (int64_t run = 0; run < runs; ++run, x += n, y += n) {
      const float scale = scales[run];
      const int32_t zero = zeros[run * zero_step];
      for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i] - zero) * scale;
    }
  } else if (zero_step == 0) {
    const int32_t zero = *zeros;
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i] - zero) * scales[i];
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i] - zeros[i]) * scales[i];
  }
}

OPKIT_QUANTIZE_BODY FloatLimits LimitsOf(const float* x, int64_t n) {
  // Several minima at once, because a minimum waits for the one before.
  constexpr int64_t kLanes = 64;
  float least[kLanes] = {}, most[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const float number = x[i + lane];
      least[lane] = number < least[lane] ? number : least[lane];
      most[lane] = number > most[lane] ? number : most[lane];
    }
  FloatLimits all;
  for (; i < n; ++i) all.Add(x[i]);
  for (int64_t lane = 0; lane < kLanes; ++lane) all.Add(FloatLimits{least[lane], most[lane]});
  return all;
}
#undef OPKIT_QUANTIZE_BODY

// Defines the loops of one kind of machine. `target` is an attribute, or nothing.
#define OPKIT_QUANTIZE_LOOPS(name, target)                                                     \
  template <class T>                                                                           \
  target void Quantize##name(const float* x, const ByteScales<T>& by, int64_t runs, int64_t n, \
                             T* y) {                                                           \
    QuantizeBytes<T>(x, by, runs, n, y);                                                       \
  }                                                                                            \
  template <class T>                                                                           \
  target void Dequantize##name(const T* x, const ByteScales<T>& by, int64_t runs, int64_t n,   \
                               float* y) {                                                     \
    DequantizeBytes<T>(x, by, runs, n, y);                                                     \
  }                                                                                            \
  target inline FloatLimits Limits##name(const float* x, int64_t n) { return LimitsOf(x, n); }

OPKIT_QUANTIZE_LOOPS(Plain, )
#if defined(__x86_64__)
OPKIT_QUANTIZE_LOOPS(Avx2, __attribute__((target("avx2"))))
OPKIT_QUANTIZE_LOOPS(Avx512, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))))
#endif
#undef OPKIT_QUANTIZE_LOOPS

// The loops that this machine can run, best first.
template <class T>
std::vector<QuantizeLoops<T>> AllQuantizeLoops() {
  std::vector<QuantizeLoops<T>> loops;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    loops.push_back({&QuantizeAvx512<T>, &DequantizeAvx512<T>, &LimitsAvx512});
  if (__builtin_cpu_supports("avx2"))
    loops.push_back({&QuantizeAvx2<T>, &DequantizeAvx2<T>, &LimitsAvx2});
#endif
  loops.push_back({&QuantizePlain<T>, &DequantizePlain<T>, &LimitsPlain});
  return loops;
}
template <class T>
const QuantizeLoops<T>& BestQuantizeLoops() {
  static const QuantizeLoops<T> best = AllQuantizeLoops<T>()[0];
  return best;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_QUANTIZED_QUANTIZE_LOOPS_HPP_
