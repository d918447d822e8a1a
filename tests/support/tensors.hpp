// Makes and reads small tensors in one expression, for tests of operators.
#ifndef OPKIT_TESTS_SUPPORT_TENSORS_HPP_
#define OPKIT_TESTS_SUPPORT_TENSORS_HPP_

#include <random>
#include <type_traits>
#include <utility>

#include "opkit/op/check/check_data.hpp"
#include "support/lists.hpp"

// Makes a tensor of rank 1: Vector({1, 2}) is float32[2], Vector<int32_t>({1, 2}) is int32[2].
template <class T = float>
opkit::Tensor Vector(const std::vector<std::type_identity_t<T>>& values) {
  return opkit::Tensor::From<T>({static_cast<int64_t>(values.size())}, values);
}
inline Floats FloatsOf(const opkit::Tensor& tensor) { return tensor.ToVector<float>(); }

// Fills a tensor with 0, 1, 2, … in row-major order, so that each value shows where it comes from.
inline opkit::Tensor Counting(const opkit::Shape& shape,
                              opkit::DType dtype = opkit::DType::kFloat32) {
  opkit::Tensor out(shape, dtype);
  for (int64_t i = 0; i < out.numel(); ++i)
    opkit::detail::SetNumber(out, i, static_cast<double>(i));
  return out;
}
inline opkit::Tensor Filled(opkit::Shape shape, float value) {
  opkit::Tensor out(std::move(shape), opkit::DType::kFloat32);
  for (int64_t i = 0; i < out.numel(); ++i) out.mutable_data<float>()[i] = value;
  return out;
}
// Fills a tensor with float32 or float64 numbers in [-1, 1).
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

#endif  // OPKIT_TESTS_SUPPORT_TENSORS_HPP_
