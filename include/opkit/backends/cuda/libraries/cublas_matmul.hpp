// MatMul and Gemm of the backend "cublas": float32, with TF32 off, float64, float16 and bfloat16,
// whose sums are in float32.
#ifndef OPKIT_BACKENDS_CUDA_LIBRARIES_CUBLAS_MATMUL_HPP_
#define OPKIT_BACKENDS_CUDA_LIBRARIES_CUBLAS_MATMUL_HPP_

#include "opkit/backends/cuda/libraries/cublas.hpp"
#include "opkit/backends/cuda/ops/broadcast_index.hpp"
#include "opkit/backends/cuda/ops/sum_type.hpp"
#include "opkit/graph/plan/fusion.hpp"
#include "opkit/ops/math/matmul.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// y = beta * C, broadcast to y; 0 with a null `c`.
template <class T>
struct ScaledBroadcastLoop {
  const T* c;
  T* y;
  BroadcastIndex index;
  float beta;
  OPKIT_DEVICE void operator()(int64_t i) const {
    int64_t from = 0;
    index.Find<1>(i, &from);
    y[i] =
        static_cast<T>(c ? static_cast<CUDASumType<T>>(beta) * static_cast<CUDASumType<T>>(c[from])
                         : CUDASumType<T>(0));
  }
};

// A batch of products A' B', in which each matrix of Y has its own A and B, as cuBLASLt computes
// it: products at equal distances in one call, all others in several.
struct CublasBatch {
  CublasExtents extents;      // of a call
  BroadcastIndex calls;       // the first matrices of A and B of each call
  const void* row = nullptr;  // [n], for an epilogue that adds it to the rows of a single product

  // `batch` has the steps of A and B, in matrices.
  CublasBatch(const CublasExtents& one, const Shape& batch, const Dims& step_a, const Dims& step_b)
      : extents(one), calls(BroadcastIndex::Of(batch, {step_a, step_b})) {
    if (calls.axes == 0) return;
    const int last = --calls.axes;
    const int64_t count = calls.extents[last];
    const int64_t matrices_a = calls.strides[0][last], matrices_b = calls.strides[1][last];
    calls.size /= count;
    // The rows of consecutive matrices are the rows of one.
    const bool is_tall = matrices_a == 1 && matrices_b == 0 && !one.trans_a;
    if (is_tall) {
      extents.m *= count;
    } else {
      extents.batch = count;
      extents.stride_a = matrices_a * one.m * one.k;
      extents.stride_b = matrices_b * one.n * one.k;
    }
  }

  // Issues all products of tensors with these first elements.
  template <class Scratch>
  void Run(CUDAContext& context, CublasProduct& product, const void* a, const void* b, void* y,
           int64_t one_a, int64_t one_b, Scratch scratch) const {
    const auto size = static_cast<int64_t>(BitSize(extents.dtype) / 8);
    const auto at = [size](const void* first, int64_t element) {
      return static_cast<char*>(const_cast<void*>(first)) + element * size;
    };
    for (int64_t call = 0; call < calls.size; ++call) {
      int64_t from[2];
      calls.Find<2>(call, from);
      void* const d = at(y, call * extents.batch * extents.m * extents.n);
      product.Run(context, extents,
                  {at(a, from[0] * one_a), at(b, from[1] * one_b), nullptr, d, row}, scratch);
    }
  }
};

// Returns the epilogue that adds a row and then applies the activation "Relu", "Gelu" or "" (none).
inline cublasLtEpilogue_t CublasEpilogue(const std::string& activation, bool adds_row) {
  if (activation == "Relu") return adds_row ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  if (activation == "Gelu") return adds_row ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  return adds_row ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

}  // namespace detail

// The base of the kernels on cuBLASLt. Its variants "2" and "3" take cuBLASLt's second and third
// algorithm, so that tuning can measure them.
class CublasOperator : public CUDAStandardOperator {
 public:
  using CUDAStandardOperator::CUDAStandardOperator;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    std::vector<KernelConfig> configs = ProposeTypes<FloatTypes>(query);
    configs[0].scratch_bytes = detail::kCublasScratch;
    for (int i = 2; i <= detail::kCublasAlgorithms; ++i)
      configs.emplace_back(configs[0]).variant = std::to_string(i);
    return configs;
  }

 protected:
  // Fuses an activation behind a product with one call of cuBLASLt, as a node of the type `fused`.
  // The Gelu of cuBLASLt is the one by tanh.
  static std::optional<FusedNode> FuseActivation(const FusionQuery& query, const char* fused) {
    const OperatorDef &def = query.node.def, &next = query.next.def;
    const bool is_gelu =
        next.type() == "Gelu" && next.args().Get<std::string>("approximate", "none") == "tanh";
    if ((next.type() != "Relu" && !is_gelu) || def.args().Has(kActivation) ||
        query.node.outputs[0].dtype == DType::kFloat64)
      return {};
    FusedNode made{def, query.config};
    made.def.Type(fused).Arg(kActivation, next.type());
    made.def.mutable_outputs() = next.outputs();
    return made;
  }
  cublasLtEpilogue_t EpilogueOf(bool adds_row) const {
    return detail::CublasEpilogue(activation_, adds_row);
  }
  void RequireFloats() const {
    RequireDTypes(*this, kCublasBackend,
                  {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16});
  }
  auto Workspace() {
    return [this] { return Scratch(detail::kCublasScratch); };
  }
  // Sets y = beta * C, broadcast; to 0 without C.
  void SetTo(Tensor& y, const Tensor* c, float beta) {
    const Dims none(std::vector<int64_t>(static_cast<size_t>(y.shape().rank()), 0));
    Visit<FloatTypes>([&]<class T>() {
      ParallelFor(context_, y.numel(),
                  detail::ScaledBroadcastLoop<T>{
                      c ? c->data<T>() : nullptr, y.mutable_data<T>(),
                      detail::BroadcastIndex::Of(
                          y.shape(), {c ? BroadcastStrides(c->shape(), y.shape()) : none}),
                      beta});
    });
  }
  detail::CublasProduct product_{
      config() && !config()->variant.empty() ? std::stoi(config()->variant) : 1};

 private:
  static constexpr const char* kActivation = "activation";
  const std::string activation_ = def().args().Get<std::string>(kActivation, "");
};

// MatMul. Plans fuse the Add of a row and an activation behind it into the node "MatMulEpilogue".
class CublasMatMulOp final : public CublasOperator {
 public:
  using CublasOperator::CublasOperator;

  // Fuses an Add of a row [n], then an activation, behind a product of rows by one matrix.
  static std::optional<FusedNode> Fuse(const FusionQuery& query) {
    const OperatorDef &def = query.node.def, &next = query.next.def;
    const TensorInfo &b = query.node.inputs[1], &y = query.node.outputs[0];
    for (const TensorInfo* info : {&b, &y, &query.next.outputs[0]})
      if (!info->shape.is_known() || info->dtype != y.dtype) return {};
    const Shape matrix = b.shape.ToShape(), product = y.shape.ToShape();
    if (matrix.rank() != 2 || matrix.dim(0) == 0 || product.rank() < 2) return {};
    if (next.type() != "Add") return FuseActivation(query, kFused);
    if (def.type() != "MatMul" || y.dtype == DType::kFloat64) return {};
    const TensorInfo& row = query.next.inputs[1 - query.read];
    if (!row.shape.is_known() || row.dtype != y.dtype) return {};
    const Shape c = row.shape.ToShape();
    const bool is_row = c.rank() > 0 && c.dim(-1) == product.dim(-1) && c.numel() == c.dim(-1);
    if (!is_row || query.next.outputs[0].shape.ToShape() != product) return {};
    FusedNode made{def, query.config};
    made.def.Type(kFused).Input(next.inputs()[1 - query.read]);
    made.def.mutable_outputs() = next.outputs();
    return made;
  }

  bool RunOnDevice() override {
    const Tensor &a = DenseInput(0), &b = DenseInput(1);
    Tensor* y = InferredOutput(0);
    RequireFloats();
    if (y->numel() == 0) return true;
    const auto [m, n, k] = MatMulExtents(a.shape(), b.shape());
    if (k == 0) return SetTo(*y, nullptr, 0), true;  // no node is fused
    const MatMulBatch batch(a.shape(), b.shape());
    detail::CublasBatch products({a.dtype(), m, n, k}, batch.y, batch.step_a, batch.step_b);
    if (InputSize() > 2) products.row = DenseInput(2).raw_data();
    products.extents.epilogue = EpilogueOf(products.row);
    products.Run(context_, product_, a.raw_data(), b.raw_data(), y->raw_mutable_data(), m * k,
                 k * n, Workspace());
    return true;
  }

 private:
  static constexpr const char* kFused = "MatMulEpilogue";
};

// Computes dA = dY B^T or dB = A^T dY.
class CublasMatMulGradientOp final : public CublasOperator {
 public:
  using CublasOperator::CublasOperator;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    for (size_t i = 1; i < 3; ++i)
      if (!query.inputs[i].shape.is_known())
        throw UnsupportedOperatorFeature(StrCat("the shape of input ", i, " is not known yet"));
    RequireOneProduct(
        query.def.args().Get<int64_t>("of", 0) != 0,
        MatMulBatch(query.inputs[1].shape.ToShape(), query.inputs[2].shape.ToShape()));
    return CublasOperator::Propose(query);
  }
  bool RunOnDevice() override {
    const Tensor &dy = DenseInput(0), &a = DenseInput(1), &b = DenseInput(2);
    Tensor* dx = InferredOutput(0);
    RequireFloats();
    const MatMulBatch batch(a.shape(), b.shape());
    RequireOneProduct(of_b_, batch);
    if (dx->numel() == 0) return true;
    const auto [m, n, k] = MatMulExtents(a.shape(), b.shape());
    if (dy.numel() == 0) return SetTo(*dx, nullptr, 0), true;
    const Dims all = BroadcastStrides(batch.y, batch.y);
    if (!of_b_) {
      const detail::CublasBatch products({dy.dtype(), m, k, n, false, true}, batch.y, all,
                                         batch.step_b);
      products.Run(context_, product_, dy.raw_data(), b.raw_data(), dx->raw_mutable_data(), m * n,
                   k * n, Workspace());
    } else if (batch.b.numel() == 1) {
      // The rows of all matrices of A, and those of dY, are the rows of one.
      const detail::CublasBatch product({dy.dtype(), k, n, m * batch.y.numel(), true}, {}, {}, {});
      product.Run(context_, product_, a.raw_data(), dy.raw_data(), dx->raw_mutable_data(), 0, 0,
                  Workspace());
    } else {
      const detail::CublasBatch products({dy.dtype(), k, n, m, true}, batch.y, batch.step_a, all);
      products.Run(context_, product_, a.raw_data(), dy.raw_data(), dx->raw_mutable_data(), m * k,
                   m * n, Workspace());
    }
    return true;
  }

 private:
  // Throws UnsupportedOperatorFeature if a matrix of the gradient is the sum of several products.
  static void RequireOneProduct(bool of_b, const MatMulBatch& batch) {
    const int64_t products = batch.y.numel();
    if ((of_b ? batch.b : batch.a).numel() == products) return;
    if (of_b && batch.b.numel() == 1 && batch.a.numel() == products) return;
    throw UnsupportedOperatorFeature("it does not add the gradients of a factor that is broadcast");
  }

  const bool of_b_ = GetSingleArgument<int64_t>("of") != 0;
};

// Gemm. Plans fuse an activation behind it into the node "GemmEpilogue".
class CublasGemmOp final : public CublasOperator {
 public:
  using CublasOperator::CublasOperator;

  static std::optional<FusedNode> Fuse(const FusionQuery& query) {
    const detail::GemmAttributes attributes(query.node.def);
    const SymbolicShape& b = query.node.inputs[1].shape;
    const bool multiplies = attributes.alpha != 0 && b.is_known() && b.ToShape().numel() > 0;
    return multiplies ? FuseActivation(query, "GemmEpilogue") : std::nullopt;
  }
  bool RunOnDevice() override {
    const Tensor &a = DenseInput(0), &b = DenseInput(1);
    Tensor* y = InferredOutput(0);
    RequireFloats();
    if (y->numel() == 0) return true;
    const auto& [alpha, beta, trans_a, trans_b] = gemm_;
    const Tensor* c = HasInput(2) && beta != 0 ? &DenseInput(2) : nullptr;
    const int64_t n = y->dim(1), k = a.dim(trans_a ? 0 : 1);
    if (k == 0 || alpha == 0) return SetTo(*y, c, beta), true;
    detail::CublasExtents extents{a.dtype(), y->dim(0), n, k, trans_a, trans_b};
    detail::CublasOperands operands{a.raw_data(), b.raw_data(), nullptr, y->raw_mutable_data()};
    operands.alpha = alpha;
    const bool is_row = c && c->numel() == n && c->shape().rank() > 0 && c->shape().dim(-1) == n;
    const bool adds_row = is_row && beta == 1 && a.dtype() != DType::kFloat64;
    extents.epilogue = EpilogueOf(adds_row);
    if (adds_row) {
      operands.bias = c->raw_data();
    } else if (c) {
      const bool is_whole = c->shape() == y->shape();
      if (!is_whole) SetTo(*y, c, 1);
      operands.c = is_whole ? c->raw_data() : operands.d;
      operands.beta = beta;
    }
    product_.Run(context_, extents, operands, Workspace());
    return true;
  }

 private:
  const detail::GemmAttributes gemm_{def()};
};

OPKIT_OPERATOR_SCHEMA(MatMulEpilogue)
    .Doc("Y = activation(A B + C), for a row C that is added to every row.")
    .Private()
    .NumInputs(2, 3)
    .NumOutputs(1)
    .Input(0, "A", "[..., M, K]", FloatTypes::DTypes())
    .Input(1, "B", "[K, N]", FloatTypes::DTypes())
    .Input(2, "C", "[N], with leading axes of 1; optional", FloatTypes::DTypes())
    .Output(0, "Y", "[..., M, N]")
    .Arg<std::string>("activation", "Relu, or Gelu by tanh; empty: none", "")
    .Flops([](auto& c) { return detail::ProductFlops(c.output(0), c.input(0), -1); })
    .Infer(&detail::InferMatMul);
OPKIT_OPERATOR_SCHEMA(GemmEpilogue)
    .Doc("Y = activation(alpha * A' * B' + beta * C), as in Gemm.")
    .Private()
    .NumInputs(2, 3)
    .NumOutputs(1)
    .Input(0, "A", "[M, K], or [K, M] with transA", FloatTypes::DTypes())
    .Input(1, "B", "[K, N], or [N, K] with transB", FloatTypes::DTypes())
    .Input(2, "C", "can be broadcast to [M, N]; optional", FloatTypes::DTypes())
    .Output(0, "Y", "[M, N]")
    .Arg<float>("alpha", "factor of A' * B'", 1.f)
    .Arg<float>("beta", "factor of C", 1.f)
    .Arg<int64_t>("transA", "1: A is transposed first", 0)
    .Arg<int64_t>("transB", "1: B is transposed first", 0)
    .Arg<std::string>("activation", "Relu, or Gelu by tanh", "")
    .Flops(&detail::GemmFlops)
    .Infer(&detail::InferGemm);
OPKIT_CUDA_OPERATOR_OF(kCublasBackend, MatMulEpilogue, CublasMatMulOp);
OPKIT_CUDA_OPERATOR_OF(kCublasBackend, GemmEpilogue, CublasGemmOp);
OPKIT_CUDA_OPERATOR_OF(kCublasBackend, MatMul, CublasMatMulOp);
OPKIT_CUDA_OPERATOR_OF(kCublasBackend, MatMulGradient, CublasMatMulGradientOp);
OPKIT_CUDA_OPERATOR_OF(kCublasBackend, Gemm, CublasGemmOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_LIBRARIES_CUBLAS_MATMUL_HPP_
