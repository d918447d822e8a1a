// Det: determinants of matrices. Source: https://onnx.ai/onnx/operators/onnx__Det.html, opset 22.
#ifndef OPKIT_OPS_MATH_DET_HPP_
#define OPKIT_OPS_MATH_DET_HPP_

#include <cmath>

#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline void InferDet(InferenceContext& c) {
  const SymbolicShape& x = c.input_shape(0);
  if (!x.has_rank()) return c.SetOutput(0, c.input_dtype(0), {});
  if (x.rank() < 2 || !Dim::Compatible(x[-1], x[-2]))
    Throw(ErrorCode::kInvalidArgument, "Det: X has shape ", ToString(x),
          ", expected square matrices");
  c.SetOutput(0, c.input_dtype(0),
              SymbolicShape(std::vector<Dim>(x.dims().begin(), x.dims().end() - 2)));
}

// Returns the determinant of an n * n matrix, which is overwritten, by Gaussian elimination with
// the largest pivot of each column (Golub and Van Loan, "Matrix Computations", 3.4).
inline double Determinant(double* matrix, int64_t n) {
  double product = 1;
  for (int64_t column = 0; column < n; ++column) {
    int64_t pivot = column;
    for (int64_t row = column + 1; row < n; ++row)
      if (std::fabs(matrix[row * n + column]) > std::fabs(matrix[pivot * n + column])) pivot = row;
    const double largest = matrix[pivot * n + column];
    if (pivot != column) {
      product = -product;
      for (int64_t k = column; k < n; ++k) std::swap(matrix[pivot * n + k], matrix[column * n + k]);
    }
    product *= largest;
    if (largest == 0) return 0;
    for (int64_t row = column + 1; row < n; ++row) {
      const double factor = matrix[row * n + column] / largest;
      for (int64_t k = column; k < n; ++k) matrix[row * n + k] -= factor * matrix[column * n + k];
    }
  }
  return product;
}

}  // namespace detail

// Computes in double.
class DetOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    const int64_t n = x.dim(-1);
    return Visit<FloatTypes>([&]<class T>() {
      const T* from = x.data<T>();
      T* to = y->mutable_data<T>();
      ParallelFor(y->numel(), [&](int64_t i) {
        std::vector<double> matrix(static_cast<size_t>(n * n));
        for (int64_t k = 0; k < n * n; ++k)
          matrix[detail::Index(k)] = static_cast<double>(from[i * n * n + k]);
        to[i] = ConvertElement<T>(detail::Determinant(matrix.data(), n));
      });
    });
  }
};

OPKIT_STANDARD_OPERATOR(Det, kNotImplemented, DetOp)
    .Input(0, "X", "[..., M, M]", FloatTypes::DTypes())
    .Output(0, "Y", "[...]: the determinant of each matrix; 1 of a matrix without elements",
            FloatTypes::DTypes())
    .PointwiseCost(20)
    .Infer(detail::InferDet)
    .Doc("The determinants of matrices.");

}}  // namespace opkit

#endif  // OPKIT_OPS_MATH_DET_HPP_
