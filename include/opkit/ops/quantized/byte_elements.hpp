// Elementwise operators on 8-bit integers, which the pass merge_quantized_nodes makes of operators
// between DequantizeLinear and QuantizeLinear: opkit.MapBytes looks each element up in a table, and
// com.microsoft.QLinearAdd and QLinearMul combine two quantised tensors. Source of the latter:
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md, version 1.
#ifndef OPKIT_OPS_QUANTIZED_BYTE_ELEMENTS_HPP_
#define OPKIT_OPS_QUANTIZED_BYTE_ELEMENTS_HPP_

#include <algorithm>

#include "opkit/ops/quantized/quantization.hpp"
#include "opkit/ops/support/broadcast_loop.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

using MapLoop = void (*)(const uint8_t* x, const uint8_t* table, int64_t n, uint8_t* y);

inline void MapPlain(const uint8_t* x, const uint8_t* table, int64_t n, uint8_t* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = table[x[i]];
}
#if defined(__x86_64__)
typedef uint8_t MapBytes64 __attribute__((vector_size(64)));
typedef int8_t MapSigns64 __attribute__((vector_size(64)));

__attribute__((target("avx512f,avx512bw,avx512vbmi"))) inline void MapVbmi(const uint8_t* x,
                                                                           const uint8_t* table,
                                                                           int64_t n, uint8_t* y) {
  MapBytes64 parts[4];
  std::memcpy(parts, table, sizeof(parts));
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    MapBytes64 bytes;
    std::memcpy(&bytes, x + i, sizeof(bytes));
    // A lookup in two vectors takes the lowest seven bits of a byte.
#if defined(__clang__)
    const auto low = (MapBytes64)__builtin_ia32_vpermi2varqi512(parts[0], bytes, parts[1]);
    const auto high = (MapBytes64)__builtin_ia32_vpermi2varqi512(parts[2], bytes, parts[3]);
#else
    const MapBytes64 low = __builtin_shuffle(parts[0], parts[1], bytes);
    const MapBytes64 high = __builtin_shuffle(parts[2], parts[3], bytes);
#endif
    const MapBytes64 found = (MapSigns64)bytes < 0 ? high : low;
    std::memcpy(y + i, &found, sizeof(found));
  }
  MapPlain(x + i, table, n - i, y + i);
}
#endif

// The loops that this machine can run, best first.
inline std::vector<MapLoop> MapLoops() {
  std::vector<MapLoop> loops;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vbmi"))
    loops.push_back(&MapVbmi);
#endif
  loops.push_back(&MapPlain);
  return loops;
}

// Elements of a quantised tensor, `step` 0 or 1 apart.
template <class T>
struct QuantizedElements {
  const T* x;
  int64_t step;
  float scale;
  int32_t zero;

  float operator[](int64_t i) const { return static_cast<float>(x[i * step] - zero) * scale; }
};

// Stores the quantised sum of n pairs of elements, or with kIsProduct their product. It is inlined
// into a function for each kind of machine, as in quantize_loops.hpp.
template <class T, bool kIsProduct>
__attribute__((always_inline)) inline void CombineBytes(QuantizedElements<T> a,
                                                        QuantizedElements<T> b, float scale,
                                                        float zero, int64_t n, T* __restrict y) {
  // A loop knows the steps of its operands, or the compiler would not make vector code.
  if (a.step == 0) std::swap(a, b);
  a.step = 1;
  if (b.step == 0) {
    const float number = b[0];
    for (int64_t i = 0; i < n; ++i)
      y[i] = Quantize<T>((kIsProduct ? a[i] * number : a[i] + number) / scale, zero);
  } else {
    b.step = 1;
    for (int64_t i = 0; i < n; ++i)
      y[i] = Quantize<T>((kIsProduct ? a[i] * b[i] : a[i] + b[i]) / scale, zero);
  }
}
template <class T>
using CombineLoop = void (*)(const QuantizedElements<T>& a, const QuantizedElements<T>& b,
                             float scale, float zero, int64_t n, T* y);
#define OPKIT_COMBINE_LOOP(name, target)                                                  \
  template <class T, bool kIsProduct>                                                     \
  target void Combine##name(const QuantizedElements<T>& a, const QuantizedElements<T>& b, \
                            float scale, float zero, int64_t n, T* y) {                   \
    CombineBytes<T, kIsProduct>(a, b, scale, zero, n, y);                                 \
  }
OPKIT_COMBINE_LOOP(Plain, )
#if defined(__x86_64__)
OPKIT_COMBINE_LOOP(Avx2, __attribute__((target("avx2"))))
OPKIT_COMBINE_LOOP(Avx512, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))))
#endif
#undef OPKIT_COMBINE_LOOP

template <class T, bool kIsProduct>
std::vector<CombineLoop<T>> CombineLoops() {
  std::vector<CombineLoop<T>> loops;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    loops.push_back(&CombineAvx512<T, kIsProduct>);
  if (__builtin_cpu_supports("avx2")) loops.push_back(&CombineAvx2<T, kIsProduct>);
#endif
  loops.push_back(&CombinePlain<T, kIsProduct>);
  return loops;
}

inline void InferQLinearBinary(InferenceContext& c) {
  ExpectDType(c, 0, ByteTypes::DTypes());
  const DType dtype = c.input_dtype(0);
  for (const int i : {2, 3, 5, 7})
    if (c.HasInput(i)) c.SetInput(i, dtype, {});
  for (const int i : {1, 2, 4, 5, 6, 7}) {
    if (!c.HasInput(i)) continue;
    const SymbolicShape& shape = c.input_shape(i);
    if (shape.is_known() && shape.ToShape().numel() != 1)
      Throw(ErrorCode::kInvalidArgument, c.def().type(), ": input ", i, " is ",
            ToString(c.input(i)), ", expected one element");
  }
  for (const int i : {1, 4, 6}) ExpectDType(c, i, {DType::kFloat32});
  c.SetOutput(0, c.input_dtype(0), BroadcastShape(c.input_shape(0), c.input_shape(3)));
}

}  // namespace detail

class MapBytesOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    const auto* from = static_cast<const uint8_t*>(x.raw_data());
    const auto* table = static_cast<const uint8_t*>(DenseInput(1).raw_data());
    auto* to = static_cast<uint8_t*>(y->raw_mutable_data());
    ParallelForRange(x.numel(), int64_t{1} << 16, [&](int64_t begin, int64_t end) {
      loop_(from + begin, table, end - begin, to + begin);
    });
    return true;
  }

 private:
  const detail::MapLoop loop_ = detail::MapLoops()[0];
};

template <bool kIsProduct>
class QLinearBinaryOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    const Tensor &a = DenseInput(0), &b = DenseInput(3);
    ByteTypes::Visit(a.dtype(), [&]<class T>() {
      static const detail::CombineLoop<T> combine = detail::CombineLoops<T, kIsProduct>()[0];
      const auto zero = [&](int i) {
        return HasInput(i) ? *DenseInput(i).template data<T>() : T{0};
      };
      const BroadcastLoop loop(y->shape(), {&a.shape(), &b.shape()});
      const detail::QuantizedElements<T> left{a.data<T>(), loop.step(0), Scale(1), zero(2)};
      const detail::QuantizedElements<T> right{b.data<T>(), loop.step(1), Scale(4), zero(5)};
      const float scale = Scale(6), y_zero = zero(7);
      T* const to = y->mutable_data<T>();
      loop.Run(BroadcastLoop::kGrain, [&](int64_t at, int64_t n, const int64_t* from) {
        detail::QuantizedElements<T> from_left = left, from_right = right;
        from_left.x += from[0];
        from_right.x += from[1];
        combine(from_left, from_right, scale, y_zero, n, to + at);
      });
    });
    return true;
  }

 private:
  float Scale(int i) { return *DenseInput(i).template data<float>(); }
};

OPKIT_DOMAIN_OPERATOR("opkit", MapBytes, kNone, MapBytesOp)
    .Doc(
        "y[i] = table[x[i]]: any function of 8-bit integers. The index of a negative number is 256 "
        "plus the number. Plans use it for functions between DequantizeLinear and QuantizeLinear. "
        "It has no gradient: x is made of integers.")
    .NumInputs(2)
    .Input(0, "x", "a tensor of any shape", ByteTypes::DTypes())
    .Input(1, "table", "[256]", ByteTypes::DTypes())
    .Output(0, "y", "of the shape of x, of the type of the table", ByteTypes::DTypes())
    .PointwiseCost(1)
    .Infer([](InferenceContext& c) {
      for (const int i : {0, 1}) ExpectDType(c, i, ByteTypes::DTypes());
      c.SetInput(1, DType::kUndefined, {256});
      c.SetOutput(0, c.input_dtype(1), c.input_shape(0));
    });

#define OPKIT_QLINEAR_BINARY(name, is_product, text)                                              \
  OPKIT_DOMAIN_OPERATOR("com.microsoft", name, kNone, QLinearBinaryOp<is_product>)                \
      .Doc(StrCat("C = saturate(round(", text,                                                    \
                  " / C_scale) + C_zero_point), where a = (A - A_zero_point) * A_scale, and b "   \
                  "alike, broadcast as in NumPy and computed in float32.",                        \
                  detail::kNoGradientOfRounding))                                                 \
      .NumInputs(7, 8)                                                                            \
      .Input(0, "A", "a quantised tensor", ByteTypes::DTypes())                                   \
      .Input(1, "A_scale", "one number", {DType::kFloat32})                                       \
      .Input(2, "A_zero_point", "one number, of the type of A; optional: 0", ByteTypes::DTypes()) \
      .Input(3, "B", "a quantised tensor of the type of A", ByteTypes::DTypes())                  \
      .Input(4, "B_scale", "one number", {DType::kFloat32})                                       \
      .Input(5, "B_zero_point", "one number, of the type of A; optional: 0", ByteTypes::DTypes()) \
      .Input(6, "C_scale", "one number", {DType::kFloat32})                                       \
      .Input(7, "C_zero_point", "one number, of the type of A; optional: 0", ByteTypes::DTypes()) \
      .Output(0, "C", "of the type of A", ByteTypes::DTypes())                                    \
      .PointwiseCost(7)                                                                           \
      .Infer(&detail::InferQLinearBinary)
OPKIT_QLINEAR_BINARY(QLinearAdd, false, "(a + b)");
OPKIT_QLINEAR_BINARY(QLinearMul, true, "a * b");
#undef OPKIT_QLINEAR_BINARY

}}  // namespace opkit

#endif  // OPKIT_OPS_QUANTIZED_BYTE_ELEMENTS_HPP_
