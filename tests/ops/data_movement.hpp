// What tests of operators that move data share: tensors whose elements tell where they come from.
#ifndef OPKIT_TESTS_OPS_DATA_MOVEMENT_HPP_
#define OPKIT_TESTS_OPS_DATA_MOVEMENT_HPP_

#include <doctest/doctest.h>

#include <cmath>

#include "../error_of.hpp"
#include "infer.hpp"
#include "opkit/interop/doctest.hpp"
#include "opkit/op/check.hpp"
#include "opkit/op/check/check_data.hpp"
#include "opkit/op/invoke.hpp"

namespace opkit_tests {

using namespace opkit;
using Floats = std::vector<float>;
using Ints = std::vector<int64_t>;

// 0, 1, 2, … in row-major order.
inline Tensor Counted(const Shape& shape, DType dtype = DType::kFloat32) {
  Tensor out(shape, dtype);
  for (int64_t i = 0; i < shape.numel(); ++i) detail::SetNumber(out, i, static_cast<double>(i));
  return out;
}
inline Tensor List(const Ints& values) {
  return Tensor::From<int64_t>({static_cast<int64_t>(values.size())}, values);
}
inline Floats FloatsOf(const Tensor& tensor) { return tensor.ToVector<float>(); }

// The node on these inputs is what it claims to be, in every way that CheckOperator tries.
inline void CheckNode(const OperatorDef& def, const std::vector<Tensor>& inputs) {
  const CheckReport report = CheckOperator(def, inputs);
  INFO(ToString(report));
  CHECK(report.ok());
}

}  // namespace opkit_tests

#endif  // OPKIT_TESTS_OPS_DATA_MOVEMENT_HPP_
