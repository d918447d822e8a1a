// Reads and writes tensors of any dtype as numbers, and compares tensors.
#ifndef OPKIT_OP_CHECK_IMPL_CHECK_DATA_IPP_
#define OPKIT_OP_CHECK_IMPL_CHECK_DATA_IPP_

#include <algorithm>
#include <cmath>
#include <cstring>

#include "opkit/base/index.hpp"
#include "opkit/core/attribute.hpp"
#include "opkit/core/packed.hpp"
#include "opkit/op/check/check_data.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline DType NumberType(DType dtype) {
  return dtype == DType::kComplex64    ? DType::kFloat32
         : dtype == DType::kComplex128 ? DType::kFloat64
                                       : dtype;
}

// Calls f with a pointer of the dtype's C++ type to the numbers. Reads bool as uint8_t, because a
// kernel may have left bytes that are no valid bool.
template <class F>
auto WithNumbers(DType dtype, void* data, F f) {
  if (dtype == DType::kBool) return f(static_cast<uint8_t*>(data));
  return DispatchDType<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t,
                       float16, bfloat16, float, double>(
      NumberType(dtype), [&]<class T>() { return f(static_cast<T*>(data)); });
}

// Calls f with a zero of the C++ type of a float8.
template <class F>
auto WithFloat8(DType dtype, F f) {
  return DispatchDType<float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz,
                       float8_e8m0fnu>(dtype, f);
}
// Returns the code of the number in a packed dtype.
inline uint8_t PackedCodeOf(DType dtype, double value) {
  if (dtype == DType::kFloat4E2M1)
    return Float4E2M1Format::Encode(static_cast<float>(value), Overflow::kSaturates);
  return static_cast<uint8_t>(static_cast<int64_t>(value));
}

OPKIT_INLINE double GetNumber(const Tensor& tensor, int64_t i) {
  const DType dtype = tensor.dtype();
  if (IsPacked(dtype))
    return static_cast<double>(
        NumberOfCode(dtype, PackedCode(tensor.raw_data(), BitSize(dtype), i)));
  if (IsFloat8(dtype))
    return WithFloat8(dtype, [&]<class T>() {
      return static_cast<double>(static_cast<float>(static_cast<const T*>(tensor.raw_data())[i]));
    });
  return WithNumbers(tensor.dtype(), tensor.raw_mutable_data(),
                     [&](auto* numbers) { return static_cast<double>(numbers[i]); });
}
OPKIT_INLINE void SetNumber(Tensor& tensor, int64_t i, double value) {
  const DType dtype = tensor.dtype();
  if (IsPacked(dtype))
    return SetPackedCode(tensor.raw_mutable_data(), BitSize(dtype), i, PackedCodeOf(dtype, value));
  if (IsFloat8(dtype))
    return WithFloat8(dtype, [&]<class T>() {
      static_cast<T*>(tensor.raw_mutable_data())[i] = T(static_cast<float>(value));
    });
  WithNumbers(tensor.dtype(), tensor.raw_mutable_data(), [&](auto* numbers) {
    using T = std::remove_reference_t<decltype(*numbers)>;
    if constexpr (std::is_integral_v<T>)
      numbers[i] = static_cast<T>(static_cast<int64_t>(value));
    else if constexpr (std::is_same_v<T, double>)
      numbers[i] = value;
    else
      numbers[i] = static_cast<T>(static_cast<float>(value));
  });
}

OPKIT_INLINE Tensor CopyOf(const Tensor& tensor) {
  Tensor out;
  if (tensor.initialized()) out.CopyFrom(tensor);
  return out;
}

OPKIT_INLINE bool SameBytes(const Tensor& a, const Tensor& b) {
  if (IsObject(a.dtype())) return Attribute(a) == Attribute(b);
  return a.nbytes() == 0 ||
         std::memcmp(a.raw_data(), b.raw_data(), static_cast<size_t>(a.nbytes())) == 0;
}

OPKIT_INLINE std::string PositionOf(const Shape& shape, int64_t i) {
  std::vector<int64_t> position(static_cast<size_t>(shape.rank()));
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    position[Index(axis)] = i % shape[axis];
    i /= shape[axis];
  }
  return StrCat(position);
}

OPKIT_INLINE double RelativeError(double a, double b) {
  if (a == b || (a != a && b != b)) return 0;
  return std::abs(a - b) / (std::max)({std::abs(a), std::abs(b), 1.0});
}

// Compares the bits of the i-th number of two dense tensors of one dtype.
inline bool SameBits(const Tensor& a, const Tensor& b, int64_t i) {
  const DType dtype = a.dtype();
  if (IsPacked(dtype))
    return PackedCode(a.raw_data(), BitSize(dtype), i) ==
           PackedCode(b.raw_data(), BitSize(dtype), i);
  const int64_t item = ItemSize(NumberType(dtype));
  return std::memcmp(static_cast<const char*>(a.raw_data()) + i * item,
                     static_cast<const char*>(b.raw_data()) + i * item,
                     static_cast<size_t>(item)) == 0;
}

OPKIT_INLINE std::string Difference(const Tensor& found, const Tensor& expected, double tolerance) {
  if (found.dtype() != expected.dtype() || found.shape() != expected.shape())
    return StrCat("it is ", found.dtype(), ToString(found.shape()), " instead of ",
                  expected.dtype(), ToString(expected.shape()));
  if (!found.initialized() || SameBytes(found, expected)) return {};
  if (IsObject(found.dtype())) return StrCat("it has other elements of ", found.dtype());
  const int64_t per_element = NumbersPerElement(found.dtype());
  int64_t different = 0, first = -1;
  double a = 0, b = 0;
  for (int64_t i = 0; i < found.numel() * per_element; ++i) {
    const double x = GetNumber(found, i), y = GetNumber(expected, i);
    if (SameBits(found, expected, i) || (x != x && y != y)) continue;
    if (RelativeError(x, y) <= tolerance && tolerance > 0) continue;
    if (different++ == 0) first = i / per_element, a = x, b = y;
  }
  if (different == 0) return {};
  return StrCat("element ", PositionOf(found.shape(), first), " is ", a, " instead of ", b,
                different > 1 ? StrCat(" (", different, " differ)") : std::string());
}

OPKIT_INLINE double DefaultTolerance(DType dtype) {
  dtype = NumberType(dtype);
  return dtype == DType::kFloat64    ? 1e-9
         : dtype == DType::kFloat32  ? 1e-4
         : dtype == DType::kFloat16  ? 1e-2
         : dtype == DType::kBFloat16 ? 5e-2
                                     : 0;
}

}  // namespace detail

OPKIT_INLINE Tensor RandomTensor(const Shape& shape, DType dtype, uint64_t seed) {
  Tensor out(shape, dtype);
  if (IsPacked(dtype) && out.nbytes() > 0)  // the bits behind the last element are 0
    std::memset(out.raw_mutable_data(), 0, static_cast<size_t>(out.nbytes()));
  // An integer of two or four bits cannot hold all numbers from 1 to 5.
  const bool is_small_integer = IsPacked(dtype) && dtype != DType::kFloat4E2M1;
  const int most = dtype == DType::kInt2 ? 1 : dtype == DType::kUInt2 ? 3 : 5;
  detail::CheckRandom random(seed);
  for (int64_t i = 0; i < shape.numel() * detail::NumbersPerElement(dtype); ++i) {
    const double u = random.Uniform();
    const bool odd = random.Next() & 1;
    detail::SetNumber(out, i,
                      dtype == DType::kBool                ? (odd ? 1 : 0)
                      : IsInteger(dtype)                   ? 1 + static_cast<int>(u * 5)
                      : is_small_integer                   ? 1 + static_cast<int>(u * most)
                      : odd && dtype != DType::kFloat8E8M0 ? -(0.25 + u)
                                                           : 0.25 + u);
  }
  return out;
}

}}  // namespace opkit

#endif  // OPKIT_OP_CHECK_IMPL_CHECK_DATA_IPP_
