// Describes in one sentence how two tensors differ. The conformance corpus and the tests of real
// models compare outputs with it. Elements compare as in numpy.testing.assert_allclose: NaN equals
// NaN, and an infinity equals itself.
#ifndef OPKIT_TESTS_SUPPORT_COMPARE_HPP_
#define OPKIT_TESTS_SUPPORT_COMPARE_HPP_

#include <cmath>
#include <cstdio>

#include "opkit/core/packed.hpp"
#include "opkit/core/sequence.hpp"

// Floating-point elements may differ by atol + rtol * |expected|; all others must be equal.
struct Tolerance {
  double rtol = 1e-3;
  double atol = 1e-7;
};

inline bool IsClose(double found, double expected, const Tolerance& tolerance) {
  if (std::isnan(found) || std::isnan(expected)) return std::isnan(found) && std::isnan(expected);
  if (std::isinf(found) || std::isinf(expected)) return found == expected;
  return std::abs(found - expected) <= tolerance.atol + tolerance.rtol * std::abs(expected);
}

namespace compare_detail {

inline std::string IndexOf(int64_t element, const opkit::Shape& shape) {
  std::string out;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    out = std::to_string(element % shape[axis]) + (out.empty() ? "" : ", ") + out;
    element /= shape[axis];
  }
  return "[" + out + "]";
}

template <class T>
std::string Text(T value) {
  if constexpr (std::is_same_v<T, std::string>) {
    return "\"" + value + "\"";
  } else if constexpr (std::is_integral_v<T>) {
    return std::to_string(value);
  } else {
    char text[32];
    std::snprintf(text, sizeof text, "%.9g", static_cast<double>(value));
    return text;
  }
}

// Describes the first element for which equal(found, expected) is false, and counts such elements;
// empty for none.
template <class T, class Equal>
std::string FirstDifference(const opkit::Tensor& found, const opkit::Tensor& expected,
                            Equal equal) {
  const std::vector<T> f = found.ToVector<T>(), e = expected.ToVector<T>();
  int64_t differ = 0, first = -1;
  for (int64_t i = 0; i < expected.numel(); ++i) {
    const auto at = static_cast<size_t>(i);
    if (equal(f[at], e[at])) continue;
    if (differ++ == 0) first = i;
  }
  if (differ == 0) return {};
  const auto at = static_cast<size_t>(first);
  return opkit::StrCat("element ", IndexOf(first, expected.shape()), ": found ", Text<T>(f[at]),
                       ", expected ", Text<T>(e[at]), " (",
                       opkit::StrCat(differ, " of ", expected.numel(), " differ)"));
}

// Returns the numbers of a packed tensor.
inline opkit::Tensor Unpacked(const opkit::Tensor& packed) {
  opkit::Tensor out(packed.shape(), opkit::DType::kFloat32);
  for (int64_t i = 0; i < packed.numel(); ++i)
    out.mutable_data<float>()[i] = opkit::NumberOfCode(
        packed.dtype(), opkit::PackedCode(packed.raw_data(), opkit::BitSize(packed.dtype()), i));
  return out;
}

}  // namespace compare_detail

// Describes a difference; empty if dtypes and shapes are equal and every element is close.
inline std::string Difference(const opkit::Tensor& found, const opkit::Tensor& expected,
                              const Tolerance& tolerance = {}) {
  using opkit::DType;
  if (found.dtype() != expected.dtype() || !(found.shape() == expected.shape()))
    return opkit::StrCat("found ", found, ", expected ", expected);
  if (IsPacked(found.dtype()))
    return Difference(compare_detail::Unpacked(found), compare_detail::Unpacked(expected),
                      Tolerance{0, 0});
  const auto close = [&](auto f, auto e) {
    return IsClose(static_cast<double>(f), static_cast<double>(e), tolerance);
  };
  const auto same = [](const auto& f, const auto& e) { return f == e; };
  if (expected.dtype() == DType::kString)
    return compare_detail::FirstDifference<std::string>(found, expected, same);
  if (opkit::IsObject(expected.dtype())) {
    const auto elements = opkit::ElementsOf(found);
    for (size_t i = 0; i < elements.size(); ++i)
      if (std::string why = Difference(elements[i], opkit::ElementsOf(expected)[i], tolerance);
          !why.empty())
        return opkit::StrCat("element ", i, ": ", why);
    return {};
  }
  return opkit::DispatchDType<bool, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t,
                              uint64_t, opkit::float16, opkit::bfloat16, float, double,
                              opkit::float8_e4m3fn, opkit::float8_e4m3fnuz, opkit::float8_e5m2,
                              opkit::float8_e5m2fnuz, opkit::float8_e8m0fnu>(
      expected.dtype(), [&]<class T>() -> std::string {
        if constexpr (std::is_integral_v<T>)
          return compare_detail::FirstDifference<T>(found, expected, same);
        else
          return compare_detail::FirstDifference<T>(found, expected, close);
      });
}

#endif  // OPKIT_TESTS_SUPPORT_COMPARE_HPP_
