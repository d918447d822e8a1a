// MatMul and Gemm: products of matrices. Sources: https://onnx.ai/onnx/operators/onnx__MatMul.html
// (numpy.matmul), https://onnx.ai/onnx/operators/onnx__Gemm.html (BLAS level 3).
#ifndef OPKIT_OPS_MATH_MATMUL_HPP_
#define OPKIT_OPS_MATH_MATMUL_HPP_

#include "opkit/ops/support/broadcast.hpp"
#include "opkit/ops/support/element_sum.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/node_gradient.hpp"
#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The batches of a MatMul's tensors: their axes except the last two. The shapes must have passed
// inference.
struct MatMulBatch {
  Shape a, b, y;
  Dims step_a, step_b;  // in matrices, along the axes of y

  MatMulBatch(const Shape& of_a, const Shape& of_b)
      : a(Of(of_a)),
        b(Of(of_b)),
        y(BroadcastShape(a, b).ToShape()),
        step_a(BroadcastStrides(a, y)),
        step_b(BroadcastStrides(b, y)) {}

 private:
  static Shape Of(const Shape& shape) {
    return Shape(shape.data(), static_cast<size_t>(shape.rank() > 2 ? shape.rank() - 2 : 0));
  }
};

// The matrix products [m, k] x [k, n] of a MatMul. The shapes must have passed inference. A vector
// is a row on the left and a column on the right.
struct MatMulExtents {
  int64_t m = 1, n = 1, k = 0;

  MatMulExtents() = default;
  MatMulExtents(const Shape& a, const Shape& b)
      : m(a.rank() > 1 ? a.dim(-2) : 1), n(b.rank() > 1 ? b.dim(-1) : 1), k(a.dim(-1)) {}
};
struct MatMulSizes : MatMulExtents {
  // One product: matrix number `a` of A times matrix number `b` of B.
  struct Product {
    int64_t a, b;
  };
  std::vector<Product> products;
  bool a_repeats = false, b_repeats = false;  // a matrix is a factor of more than one product

  MatMulSizes() = default;
  MatMulSizes(const Shape& a, const Shape& b) : MatMulExtents(a, b) {
    const MatMulBatch batch(a, b);
    Dims index = batch.step_a;
    for (int i = 0; i < index.size(); ++i) index[i] = 0;
    for (int64_t left = batch.y.numel(); left > 0; --left) {
      Product product{0, 0};
      for (int i = 0; i < index.size(); ++i) {
        product.a += index[i] * batch.step_a[i];
        product.b += index[i] * batch.step_b[i];
      }
      products.push_back(product);
      for (int i = index.size() - 1; i >= 0 && ++index[i] == batch.y[i]; --i) index[i] = 0;
    }
    a_repeats = batch.a.numel() < batch.y.numel();
    b_repeats = batch.b.numel() < batch.y.numel();
  }
};

namespace detail {

// A row or column of a matrix: element i is data[at + i * step]. `at` is separate from `data`,
// because `data` is null for a matrix without elements.
template <class T>
struct MatrixLine {
  const T* data;
  int64_t at, step;
};
template <class T, class Sum = SumType<T>>
OPKIT_HOST_DEVICE Sum DotProduct(int64_t count, const MatrixLine<T>& x, const MatrixLine<T>& y) {
  Sum sum = 0;
  for (int64_t i = 0; i < count; ++i)
    sum +=
        static_cast<Sum>(x.data[x.at + i * x.step]) * static_cast<Sum>(y.data[y.at + i * y.step]);
  return sum;
}

// Returns the extents of all axes except the last two.
inline SymbolicShape BatchOf(const SymbolicShape& shape) {
  std::vector<Dim> dims = shape.dims();
  dims.resize(shape.rank() > 2 ? static_cast<size_t>(shape.rank() - 2) : 0);
  return SymbolicShape(std::move(dims));
}

[[noreturn]] inline void CannotMultiply(const InferenceContext& c, const SymbolicShape& a,
                                        const SymbolicShape& b, const Dim& inner_a,
                                        const Dim& inner_b) {
  Throw(ErrorCode::kInvalidArgument, c.def().type(), " cannot multiply ", ToString(a), " by ",
        ToString(b), ": the inner extents are ", ToString(inner_a), " and ", ToString(inner_b));
}

inline void InferMatMul(InferenceContext& c) {
  const DType dtype = ExpectSameDType(c);
  const SymbolicShape &a = c.input_shape(0), &b = c.input_shape(1);
  for (int i = 0; i < 2; ++i)
    if (c.input_shape(i).has_rank() && c.input_shape(i).rank() == 0)
      Throw(ErrorCode::kInvalidArgument, "MatMul: input ", i,
            " is a scalar, expected a vector, a matrix or a batch of matrices; use Mul");
  if (!a.has_rank() || !b.has_rank()) return c.SetOutput(0, dtype, {});
  const Dim inner_a = a[-1], inner_b = b.rank() == 1 ? b[0] : b[-2];
  if (!Dim::Compatible(inner_a, inner_b)) CannotMultiply(c, a, b, inner_a, inner_b);
  std::vector<Dim> out = BroadcastShape(BatchOf(a), BatchOf(b)).dims();
  if (a.rank() > 1) out.push_back(a[-2]);
  if (b.rank() > 1) out.push_back(b[-1]);
  c.SetOutput(0, dtype, SymbolicShape(std::move(out)));
}

// The attributes of a Gemm.
struct GemmAttributes {
  explicit GemmAttributes(const OperatorDef& def)
      : alpha(def.args().Get<float>("alpha", 1.f)),
        beta(def.args().Get<float>("beta", 1.f)),
        trans_a(def.args().Get<int64_t>("transA", 0) != 0),
        trans_b(def.args().Get<int64_t>("transB", 0) != 0) {}
  // Returns the factor of sums of k products. As in BLAS, sums without products are 0, also if
  // alpha is infinite or NaN.
  float AlphaFor(int64_t k) const { return k == 0 ? 0 : alpha; }
  float alpha, beta;
  bool trans_a, trans_b;
};

// Returns alpha * sum + beta * c as an element of T. A null `c` is left out.
template <class T, class Sum>
OPKIT_HOST_DEVICE T GemmElement(Sum sum, float alpha, float beta, const T* c) {
  if constexpr (std::is_integral_v<T>) {
    if (alpha == 1 && (!c || beta == 1))
      return static_cast<T>(c ? sum + static_cast<Sum>(*c) : sum);
    // Scaled integers are computed as real numbers.
    const double real = static_cast<double>(alpha) * static_cast<double>(static_cast<T>(sum)) +
                        (c ? static_cast<double>(beta) * static_cast<double>(*c) : 0);
    return ElementOfSum<T>(real);
  } else {
    sum *= static_cast<Sum>(alpha);
    if (c) sum += static_cast<Sum>(beta) * static_cast<Sum>(*c);
    return ElementOfSum<T>(sum);
  }
}

inline void InferGemm(InferenceContext& c) {
  const DType dtype = ExpectSameDType(c);
  for (int i = 0; i < 2; ++i)
    if (c.input_shape(i).has_rank() && c.input_shape(i).rank() != 2)
      Throw(ErrorCode::kInvalidArgument, "Gemm: input ", i, " is ", ToString(c.input(i)),
            ", expected a matrix; use MatMul for batches");
  const SymbolicShape &a = c.input_shape(0), &b = c.input_shape(1);
  const GemmAttributes attributes(c.def());
  const int ta = attributes.trans_a, tb = attributes.trans_b;
  SymbolicShape out = SymbolicShape::OfRank(2);
  if (a.has_rank()) out[0] = a[ta];
  if (b.has_rank()) out[1] = b[1 - tb];
  if (a.has_rank() && b.has_rank() && !Dim::Compatible(a[1 - ta], b[tb]))
    CannotMultiply(c, a, b, a[1 - ta], b[tb]);
  if (c.HasInput(2) && c.input_shape(2).has_rank() && !MayBroadcastTo(c.input_shape(2), out))
    Throw(ErrorCode::kInvalidArgument, "Gemm: C is ", ToString(c.input(2)),
          ", which cannot be broadcast to the product's shape ", ToString(out));
  c.SetOutput(0, dtype, out);
}

// Returns the number of operations of a product. An element of the product is a sum along axis
// `inner` of the factor; each term of the sum takes two operations. 0 if the factor has no such
// axis: OpSchema::Cost does not check shapes.
inline uint64_t ProductFlops(const TensorInfo& product, const TensorInfo& factor, int inner) {
  const Shape shape = factor.shape.ToShape();
  if (inner >= shape.rank() || inner < -shape.rank()) return 0;
  return 2 * OpSchema::Elements(product) * static_cast<uint64_t>(shape.dim(inner));
}

inline uint64_t GemmFlops(const InferenceContext& c) {
  return ProductFlops(c.output(0), c.input(0), GemmAttributes(c.def()).trans_a ? 0 : 1);
}

OPKIT_NODE_GRADIENT(MatMul) {
  for (int i = 0; i < 2; ++i) Give(i, "MatMulGradient", {GO(0), I(0), I(1)}, {{"of", i}});
}

// With Y = alpha A' B' + beta C: dA' = alpha dY B'^T, dB' = alpha A'^T dY.
OPKIT_NODE_GRADIENT(Gemm) {
  const GemmAttributes attributes(Def());
  const int64_t trans_a = attributes.trans_a, trans_b = attributes.trans_b;
  const auto give = [&](int i, const std::string& a, int64_t turn_a, const std::string& b,
                        int64_t turn_b) {
    Give(i, "Gemm", {a, b}, {{"alpha", attributes.alpha}, {"transA", turn_a}, {"transB", turn_b}});
  };
  trans_a ? give(0, I(1), trans_b, GO(0), 1) : give(0, GO(0), 0, I(1), 1 - trans_b);
  trans_b ? give(1, GO(0), 1, I(0), trans_a) : give(1, I(0), 1 - trans_a, GO(0), 0);
  if (Def().inputs().size() > 2 && !Def().inputs()[2].empty())
    GiveSummed(2, GO(0), attributes.beta);
}

}  // namespace detail

class MatMulOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

  bool RunOnDevice() override {
    return Visit<MatrixTypes>([&]<class T>() {
      Tensor* y = InferredOutput(0);
      if (y->numel() == 0) return;
      const Tensor &a = DenseInput(0), &b = DenseInput(1);
      const MatMulSizes sizes(a.shape(), b.shape());
      const int64_t m = sizes.m, n = sizes.n, k = sizes.k;
      const T *left = a.data<T>(), *right = b.data<T>();
      T* out = y->mutable_data<T>();
      ParallelFor(static_cast<int64_t>(sizes.products.size()) * m, [&](int64_t at) {
        const auto [in_a, in_b] = sizes.products[detail::Index(at / m)];
        const int64_t row = (in_a * m + at % m) * k;
        for (int64_t j = 0; j < n; ++j)
          out[at * n + j] = detail::ElementOfSum<T>(
              detail::DotProduct<T>(k, {left, row, 1}, {right, in_b * k * n + j, n}));
      });
    });
  }
};

// The base of Gemm's kernels. As in BLAS, an operand with factor 0 is not read: NaN and infinity in
// A and B (if alpha is 0) or in C (if beta is 0) have no effect.
class GemmOpBase : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

 protected:
  const detail::GemmAttributes gemm_{def()};
};

class GemmOp final : public GemmOpBase {
 public:
  using GemmOpBase::GemmOpBase;

  bool RunOnDevice() override {
    return Visit<MatrixTypes>([&]<class T>() {
      Tensor* y = InferredOutput(0);
      const Tensor &a = DenseInput(0), &b = DenseInput(1);
      const int64_t m = y->dim(0), n = y->dim(1), k = a.dim(gemm_.trans_a ? 0 : 1);
      const int64_t a_row = gemm_.trans_a ? 1 : k, a_inner = gemm_.trans_a ? m : 1;
      const int64_t b_inner = gemm_.trans_b ? 1 : n, b_column = gemm_.trans_b ? k : 1;
      const T *left = a.data<T>(), *right = b.data<T>(), *bias = nullptr;
      Dims step = {0, 0};
      if (HasInput(2) && gemm_.beta != 0) {
        bias = DenseInput(2).data<T>();
        step = BroadcastStrides(Input(2).shape(), y->shape());
      }
      T* out = y->mutable_data<T>();
      const float alpha = gemm_.AlphaFor(k);
      ParallelFor(m, [&](int64_t i) {
        for (int64_t j = 0; j < n; ++j) {
          const auto sum = detail::DotProduct<T>(alpha == 0 ? 0 : k, {left, i * a_row, a_inner},
                                                 {right, j * b_column, b_inner});
          const T* c = bias ? bias + i * step[0] + j * step[1] : nullptr;
          out[i * n + j] = detail::GemmElement<T>(sum, alpha, gemm_.beta, c);
        }
      });
    });
  }
};

// The base of MatMulGradient's kernels.
class MatMulGradientOpBase : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

 protected:
  const bool of_b_ = GetSingleArgument<int64_t>("of") != 0;
};

// Computes dA = dY B^T or dB = A^T dY, summed over all products with the same factor.
class MatMulGradientOp final : public MatMulGradientOpBase {
 public:
  using MatMulGradientOpBase::MatMulGradientOpBase;

  bool RunOnDevice() override {
    return Visit<FloatTypes>([&]<class T>() {
      Tensor* dx = InferredOutput(0);
      if (dx->numel() == 0) return;
      const T* dy = DenseInput(0).data<T>();
      const Tensor &a = DenseInput(1), &b = DenseInput(2);
      const MatMulSizes sizes(a.shape(), b.shape());
      const int64_t m = sizes.m, n = sizes.n, k = sizes.k;
      const T *left = a.data<T>(), *right = b.data<T>();
      const int64_t count = dx->numel();
      auto* sums = static_cast<double*>(Scratch(count * static_cast<int64_t>(sizeof(double))));
      std::fill_n(sums, count, 0.0);
      const int64_t rows = of_b_ ? k : m, columns = of_b_ ? n : k;
      ParallelFor(rows, [&](int64_t row) {
        for (size_t p = 0; p < sizes.products.size(); ++p) {
          const auto [in_a, in_b] = sizes.products[p];
          const int64_t from = static_cast<int64_t>(p) * m * n;
          double* sum = sums + ((of_b_ ? in_b : in_a) * rows + row) * columns;
          for (int64_t column = 0; column < columns; ++column)
            sum[column] += of_b_ ? detail::DotProduct<T>(m, {left, in_a * m * k + row, k},
                                                         {dy, from + column, n})
                                 : detail::DotProduct<T>(n, {dy, from + row * n, 1},
                                                         {right, (in_b * k + column) * n, 1});
        }
      });
      T* out = dx->mutable_data<T>();
      for (int64_t i = 0; i < count; ++i) out[i] = detail::ElementOfSum<T>(sums[i]);
    });
  }
};

OPKIT_STANDARD_OPERATOR(MatMul, kMaker, MatMulOp)
    .Doc(
        "The matrix product of A and B as numpy.matmul has it: the last two axes are matrices, "
        "those before them a batch and broadcast. A vector on the left is a row, one on the "
        "right a column, and the axis of 1 that it gets is dropped again.")
    .NumInputs(2)
    .Input(0, "A", "[..., M, K], or [K]", MatrixTypes::DTypes())
    .Input(1, "B", "[..., K, N], or [K]; of the type of A", MatrixTypes::DTypes())
    .Output(0, "Y", "[..., M, N]")
    .Flops([](auto& c) { return detail::ProductFlops(c.output(0), c.input(0), -1); })
    .Infer(&detail::InferMatMul);

namespace detail {

// The gradient of a factor is a product too: of the gradient of Y and of the other factor.
OPKIT_NODE_GRADIENT(MatMulGradient) {
  if (Def().args().Get<int64_t>("of", 0) == 0) {
    Give(0, "MatMul", {GO(0), I(2)});
    Give(2, "MatMulGradient", {I(0), GO(0), I(2)}, {{"of", 1}});
  } else {
    Give(0, "MatMul", {I(1), GO(0)});
    Give(1, "MatMulGradient", {I(0), I(1), GO(0)}, {{"of", 0}});
  }
}

}  // namespace detail

OPKIT_STANDARD_OPERATOR(MatMulGradient, kMaker, MatMulGradientOp)
    .Private()
    .Doc("The gradient of a factor of Y = MatMul(A, B), from that of Y.")
    .NumInputs(3)
    .Input(0, "dY", "as Y", FloatTypes::DTypes())
    .Input(1, "A", "as in MatMul", FloatTypes::DTypes())
    .Input(2, "B", "as in MatMul", FloatTypes::DTypes())
    .Output(0, "dX", "as the factor")
    .Arg<int64_t>("of", "0: of A, 1: of B", 0)
    // The gradient of one factor takes as many operations as the product itself.
    .Flops([](auto& c) { return detail::ProductFlops(c.input(0), c.input(1), -1); })
    .Infer([](InferenceContext& c) {
      const int of = c.Arg<int64_t>("of") != 0 ? 2 : 1;
      c.SetOutput(0, ExpectSameDType(c), c.input_shape(of));
    });

OPKIT_STANDARD_OPERATOR(Gemm, kMaker, GemmOp)
    .Doc("Y = alpha * A' * B' + beta * C, where A' is A or its transpose, and B' likewise.")
    .NumInputs(2, 3)
    .Input(0, "A", "[M, K], or [K, M] with transA", MatrixTypes::DTypes())
    .Input(1, "B", "[K, N], or [N, K] with transB", MatrixTypes::DTypes())
    .Input(2, "C", "can be broadcast to [M, N]; optional", MatrixTypes::DTypes())
    .Output(0, "Y", "[M, N]")
    .Arg<float>("alpha", "factor of A' * B'", 1.f)
    .Arg<float>("beta", "factor of C", 1.f)
    .Arg<int64_t>("transA", "1: A is transposed first", 0)
    .Arg<int64_t>("transB", "1: B is transposed first", 0)
    .Flops(&detail::GemmFlops)
    .Infer(&detail::InferGemm);

}}  // namespace opkit

#endif  // OPKIT_OPS_MATH_MATMUL_HPP_
