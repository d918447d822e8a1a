// Transpose of any element type for the "eigen" backend, by StridedCopy. Strings and packed
// elements go through the reference kernel.
#ifndef OPKIT_BACKENDS_EIGEN_TRANSPOSE_HPP_
#define OPKIT_BACKENDS_EIGEN_TRANSPOSE_HPP_

#include "opkit/backends/eigen/backend.hpp"
#include "opkit/ops/support/strided_copy.hpp"
#include "opkit/ops/transpose.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class TransposeEigenOp : public TransposeOpBase {
 public:
  using TransposeOpBase::TransposeOpBase;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = InferredOutput(0);
    const Dims& order = Order(x.rank());
    const Dims from = x.strides(), to = y->shape().DenseStrides();
    copy_.Start(ItemSize(x.dtype()));
    for (int i = 0; i < x.rank(); ++i)
      copy_.Axis(y->dim(i), from[static_cast<int>(order[i])], to[i]);
    copy_.Run(x.raw_data(), y->raw_mutable_data());
    return true;
  }

 private:
  StridedCopy copy_;
};

OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Transpose, eigen, MovingStrings<TransposeEigenOp>);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_EIGEN_TRANSPOSE_HPP_
