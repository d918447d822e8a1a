// Det: determinants of matrices. Source: https://onnx.ai/onnx/operators/onnx__Det.html, opset 22.
#ifndef OPKIT_OPS_MATH_DET_HPP_
#define OPKIT_OPS_MATH_DET_HPP_

#include <cmath>

#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the shape of the output as far as it is known.
inline SymbolicShape DetOutputShape(InferenceContext& c) {
  const SymbolicShape& x = c.input_shape(0);
  if (!x.has_rank()) return {};
  if (x.rank() < 2 || !Dim::Compatible(x[-1], x[-2]))
    Throw(ErrorCode::kInvalidArgument, "Det: X has shape ", ToString(x),
          ", expected square matrices");
  return SymbolicShape(std::vector<Dim>(x.dims().begin(), x.dims().end() - 2));
}
inline void InferDet(InferenceContext& c) { c.SetOutput(0, c.input_dtype(0), DetOutputShape(c)); }

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

OPKIT_NODE_GRADIENT(Det) { Give(0, "DetGradient", {I(0), GO(0)}); }

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

// The derivative with respect to an element is its cofactor: the determinant without its row and
// column, with alternating sign. It is defined for singular matrices too.
class DetGradientOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor &x = DenseInput(0), &dy = DenseInput(1);
    Tensor* dx = InferredOutput(0);
    const int64_t n = x.dim(-1);
    return Visit<FloatTypes>([&]<class T>() {
      const T *from = x.data<T>(), *slope = dy.data<T>();
      T* to = dx->mutable_data<T>();
      ParallelFor(x.numel(), [&](int64_t i) {
        const T* matrix = from + i / (n * n) * n * n;
        const int64_t row = i / n % n, column = i % n;
        std::vector<double> minor;
        for (int64_t r = 0; r < n; ++r)
          for (int64_t c = 0; c < n; ++c)
            if (r != row && c != column) minor.push_back(static_cast<double>(matrix[r * n + c]));
        const double cofactor =
            ((row + column) % 2 ? -1 : 1) * detail::Determinant(minor.data(), n - 1);
        to[i] = ConvertElement<T>(static_cast<double>(slope[i / (n * n)]) * cofactor);
      });
    });
  }
};

OPKIT_STANDARD_OPERATOR(Det, kMaker, DetOp)
    .Input(0, "X", "[..., M, M]", FloatTypes::DTypes())
    .Output(0, "Y", "[...]: the determinant of each matrix; 1 of a matrix without elements",
            FloatTypes::DTypes())
    .PointwiseCost(20)
    .Infer(detail::InferDet)
    .Doc("The determinants of matrices.");
OPKIT_STANDARD_OPERATOR(DetGradient, kNotImplemented, DetGradientOp)
    .Private()
    .NumInputs(2)
    .Input(0, "X", "of Det", FloatTypes::DTypes())
    .Input(1, "dY", "of the type of X, of the shape of Det's output")
    .Output(0, "dX", "as X")
    .PointwiseCost(100)
    .Infer([](InferenceContext& c) {
      c.SetInput(1, c.input_dtype(0), detail::DetOutputShape(c));
      c.SetOutput(0, c.input_dtype(0), c.input_shape(0));
    })
    .Doc("The gradient of determinants, from that of the result: multiples of the cofactors.");

}}  // namespace opkit

#endif  // OPKIT_OPS_MATH_DET_HPP_
