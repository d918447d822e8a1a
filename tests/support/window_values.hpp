// Tensors for the tests of convolutions, pools and normalizations.
#ifndef OPKIT_TESTS_SUPPORT_WINDOW_VALUES_HPP_
#define OPKIT_TESTS_SUPPORT_WINDOW_VALUES_HPP_

#include <random>

#include "opkit/core/tensor.hpp"

// 0, 1, 2, …
inline opkit::Tensor Counting(opkit::Shape shape) {
  opkit::Tensor out(std::move(shape), opkit::DType::kFloat32);
  for (int64_t i = 0; i < out.numel(); ++i) out.mutable_data<float>()[i] = static_cast<float>(i);
  return out;
}
inline opkit::Tensor Filled(opkit::Shape shape, float value) {
  opkit::Tensor out(std::move(shape), opkit::DType::kFloat32);
  for (int64_t i = 0; i < out.numel(); ++i) out.mutable_data<float>()[i] = value;
  return out;
}
// Of float or double, in [-1, 1).
inline opkit::Tensor Random(opkit::Shape shape, uint64_t seed,
                            opkit::DType dtype = opkit::DType::kFloat32) {
  opkit::Tensor out(std::move(shape), dtype);
  std::mt19937_64 engine(seed);
  opkit::DispatchDType<float, double>(dtype, [&]<class T>() {
    for (int64_t i = 0; i < out.numel(); ++i)
      out.mutable_data<T>()[i] = static_cast<T>(static_cast<double>(engine() >> 11) * 0x1p-52 - 1);
  });
  return out;
}

#endif  // OPKIT_TESTS_SUPPORT_WINDOW_VALUES_HPP_
