// Reads and writes elements of any floating-point type as double, for the fake libraries.
#ifndef OPKIT_TESTS_CUDA_FAKE_FAKE_ELEMENTS_HPP_
#define OPKIT_TESTS_CUDA_FAKE_FAKE_ELEMENTS_HPP_

#include "opkit/core/dtype.hpp"

namespace fake {

// Calls f with the elements, of their type.
template <class F>
void WithElements(const void* data, opkit::DType dtype, F f) {
  const auto call = [&]<class T>(const T*) { f(static_cast<T*>(const_cast<void*>(data))); };
  switch (dtype) {
    case opkit::DType::kFloat64:
      return call(static_cast<const double*>(data));
    case opkit::DType::kFloat16:
      return call(static_cast<const opkit::float16*>(data));
    case opkit::DType::kBFloat16:
      return call(static_cast<const opkit::bfloat16*>(data));
    default:
      return call(static_cast<const float*>(data));
  }
}
inline double Load(const void* data, int64_t i, opkit::DType dtype) {
  double value = 0;
  WithElements(data, dtype,
               [&](const auto* elements) { value = static_cast<double>(elements[i]); });
  return value;
}
inline void Store(void* data, int64_t i, opkit::DType dtype, double value) {
  WithElements(data, dtype, [&]<class T>(T* elements) {
    if constexpr (sizeof(T) == 2)
      elements[i] = static_cast<T>(static_cast<float>(value));
    else
      elements[i] = static_cast<T>(value);
  });
}

}  // namespace fake

#endif  // OPKIT_TESTS_CUDA_FAKE_FAKE_ELEMENTS_HPP_
