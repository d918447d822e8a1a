// The arithmetic of quantised tensors: q = saturate(round(x / scale) + zero_point), x = (q -
// zero_point) * scale. Elements are converted in blocks, by way of float32, so that each element
// type needs one loop, and not each pair of types.
#ifndef OPKIT_OPS_QUANTIZED_QUANTIZATION_HPP_
#define OPKIT_OPS_QUANTIZED_QUANTIZATION_HPP_

#include <bit>
#include <cstring>
#include <limits>

#include "opkit/ops/support/small_numbers.hpp"
#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The types that numbers are quantised to.
using QuantizedTypes = ElementTypes<int8_t, uint8_t, int16_t, uint16_t>;
// The factors of products of quantised tensors.
using ByteTypes = ElementTypes<int8_t, uint8_t>;
using ScaleTypes = ElementTypes<float, float16, bfloat16>;

// Returns QuantizedTypes, and the small dtypes that numbers are quantised to.
inline std::vector<DType> QuantizedDTypes() {
  std::vector<DType> all = WithSmallDTypes(QuantizedTypes::DTypes());
  std::erase(all, DType::kFloat8E8M0);
  return all;
}
// Returns ScaleTypes, and float8_e8m0fnu, of which the scales of blocks are.
inline std::vector<DType> ScaleDTypes() {
  std::vector<DType> all = ScaleTypes::DTypes();
  all.push_back(DType::kFloat8E8M0);
  return all;
}

namespace detail {

inline constexpr const char* kNoGradientOfRounding =
    " It has no gradient: rounding is constant between its steps.";

// Returns saturate(round(scaled) + zero_point), a number of T. Clamps before it rounds, since the
// limits are integers; NaN becomes the lowest number of T, as in ONNX Runtime. zero_point must be a
// number of T. A type of fewer bits than T gives its own limits.
template <class T>
OPKIT_HOST_DEVICE T Quantize(float scaled, float zero_point,
                             float lowest = (std::numeric_limits<T>::min)(),
                             float highest = (std::numeric_limits<T>::max)()) {
  const float low = lowest - zero_point, high = highest - zero_point;
  const float above = scaled > low ? scaled : low;
  // The sum has no bits for a fraction, so the addition rounds to the nearest integer, of two to
  // the even one. Its lowest bits are those of this integer, because 1.5 * 2^23 has zeros there.
  const float sum = (above < high ? above : high) + 0x1.8p23f;
  return static_cast<T>(std::bit_cast<uint32_t>(sum) +
                        static_cast<uint32_t>(static_cast<int32_t>(zero_point)));
}

// A run of elements that is converted at once.
inline constexpr int64_t kQuantizedBlock = 256;

// Returns elements [at, at + n) as numbers of type To, n at most kQuantizedBlock: a pointer into
// the tensor if it holds such numbers, else `buffer`, which they are converted to.
template <class To>
using LoadBlock = const To* (*)(const void* from, int64_t at, int64_t n, To* buffer);
template <class From, class To>
const To* LoadNumbers(const void* from, int64_t at, int64_t n, To* buffer) {
  const From* x = static_cast<const From*>(from) + at;
  if constexpr (std::is_same_v<From, To>) {
    return x;
  } else {
    for (int64_t i = 0; i < n; ++i) buffer[i] = static_cast<To>(x[i]);
    return buffer;
  }
}
template <class To, class Types>
LoadBlock<To> FindLoadBlock(DType dtype) {
  return Types::template Find<LoadBlock<To>>(
      dtype, []<class From>() -> LoadBlock<To> { return &LoadNumbers<From, To>; });
}

// Does the same for float8 and for the packed dtypes; null for other dtypes.
template <DType kDType, class To>
const To* LoadSmallBlock(const void* from, int64_t at, int64_t n, To* buffer) {
  LoadSmall(kDType, from, at, n, buffer);
  return buffer;
}
template <class To>
LoadBlock<To> FindLoadSmall(DType dtype) {
  switch (dtype) {
    case DType::kInt2:
      return &LoadSmallBlock<DType::kInt2, To>;
    case DType::kUInt2:
      return &LoadSmallBlock<DType::kUInt2, To>;
    case DType::kInt4:
      return &LoadSmallBlock<DType::kInt4, To>;
    case DType::kUInt4:
      return &LoadSmallBlock<DType::kUInt4, To>;
    case DType::kFloat4E2M1:
      return &LoadSmallBlock<DType::kFloat4E2M1, To>;
    case DType::kFloat8E4M3FN:
      return &LoadSmallBlock<DType::kFloat8E4M3FN, To>;
    case DType::kFloat8E4M3FNUZ:
      return &LoadSmallBlock<DType::kFloat8E4M3FNUZ, To>;
    case DType::kFloat8E5M2:
      return &LoadSmallBlock<DType::kFloat8E5M2, To>;
    case DType::kFloat8E5M2FNUZ:
      return &LoadSmallBlock<DType::kFloat8E5M2FNUZ, To>;
    case DType::kFloat8E8M0:
      return &LoadSmallBlock<DType::kFloat8E8M0, To>;
    default:
      return nullptr;
  }
}

// The only element of a scale, as a float. Throws kInvalidArgument for another number of elements.
inline float ScalarScale(const Tensor& scale, std::string_view what) {
  if (scale.numel() != 1)
    Throw(ErrorCode::kInvalidArgument, what, " is ", scale, ", expected one element");
  return NumbersOf<float>(scale)[0];
}
// Returns the elements of a zero point of one of ByteTypes.
inline std::vector<int32_t> ZeroPoints(const Tensor& zero_point) {
  return DispatchDType<int8_t, uint8_t>(zero_point.dtype(), [&]<class T>() {
    const std::vector<T> values = zero_point.ToVector<T>();
    return std::vector<int32_t>(values.begin(), values.end());
  });
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_OPS_QUANTIZED_QUANTIZATION_HPP_
