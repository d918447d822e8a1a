// MatMul and Gemm of float32 by constant matrices for the "onednn" backend: the plan packs these
// once.
#ifndef OPKIT_BACKENDS_ONEDNN_MATMUL_HPP_
#define OPKIT_BACKENDS_ONEDNN_MATMUL_HPP_

#include "opkit/backends/onednn/primitive.hpp"
#include "opkit/ops/math/matmul.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Y = X W + B with X [m, k], W [k, n] or, with `transposed`, stored as [n, k], and B [n].
struct OnednnProduct {
  int64_t m, n, k;
  bool transposed, has_bias;

  using Desc = dnnl::memory::desc;
  using Kernel = dnnl::matmul::primitive_desc;

  Desc StandardWeights() const {
    const dnnl::memory::dims strides =
        transposed ? dnnl::memory::dims{1, k} : dnnl::memory::dims{n, 1};
    return {{k, n}, dnnl::memory::data_type::f32, strides};
  }
  Desc AnyWeights() const {
    return {{k, n}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::any};
  }
  // Errors: dnnl::error where oneDNN has no kernel.
  Kernel Make(const Desc& w) const {
    const Desc x = RowMajorDesc({m, k}), y = RowMajorDesc({m, n});
    const dnnl::primitive_attr attributes = OnednnAttributes();
    if (!has_bias) return Kernel(OnednnEngine(), x, w, y, attributes);
    return Kernel(OnednnEngine(), x, w, RowMajorDesc({1, n}), y, attributes);
  }
  // Its pieces for so many threads, by rows of X.
  std::vector<OnednnPiece> Cut(int threads, const Desc& w) const {
    constexpr int64_t kLeastRows = 16;
    const double flops =
        2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    const int64_t parts = OnednnPieces(flops, threads, m / kLeastRows);
    std::vector<OnednnPiece> pieces;
    for (int64_t i = 0; i < parts; ++i) {
      const int64_t first = m * i / parts;
      OnednnProduct part = *this;
      part.m = m * (i + 1) / parts - first;
      const Kernel kernel = part.Make(w);
      OnednnPiece& piece = pieces.emplace_back();
      piece.primitive = dnnl::matmul(kernel);
      piece.arguments = {{DNNL_ARG_SRC, kernel.src_desc(), first * k},
                         {DNNL_ARG_WEIGHTS, kernel.weights_desc()}};
      if (has_bias) piece.arguments.push_back({DNNL_ARG_BIAS, kernel.bias_desc()});
      piece.arguments.push_back({DNNL_ARG_DST, kernel.dst_desc(), first * n});
      piece.scratchpad = kernel.scratchpad_desc();
    }
    return pieces;
  }
  // Proposes packed weights for a node with these constants as input 1.
  std::vector<KernelConfig> Propose(const KernelQuery& query) const {
    constexpr double kLeastFlops = 1e5;  // below, a call of oneDNN takes longer than it saves
    constexpr int64_t kLeastRows = 4;    // below, weights are read once, however they are packed
    if (!query.inputs[1].constant)
      throw UnsupportedOperatorFeature(
          "its right factor is not constant, and without packing other backends are as fast");
    const double flops =
        2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    if (m < kLeastRows || flops < kLeastFlops)
      throw UnsupportedOperatorFeature(StrCat("a product of ", m, " rows and ",
                                              static_cast<int64_t>(flops),
                                              " operations is too small to gain by packing"));
    try {
      const OnednnScope scope;
      const Kernel kernel = Make(AnyWeights());
      KernelConfig config;
      config.input_layouts.resize(query.inputs.size());
      config.input_layouts[1] = OnednnLayout(kernel.weights_desc(), StandardWeights());
      config.output_layouts.resize(1);
      return {config};
    } catch (const dnnl::error& error) {
      throw UnsupportedOperatorFeature(StrCat("oneDNN has no kernel for it: ", error.what()));
    }
  }
  Desc WeightsOf(const Tensor& w) const {
    return w.layout().is_standard() ? StandardWeights() : OnednnDescriptorOf(w.layout()).desc();
  }
};

}  // namespace detail

// The rows of a batch are those of one product.
class MatMulOnednnOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireOnednnTensors(query);
    const Shape a = query.inputs[0].shape.ToShape(), b = query.inputs[1].shape.ToShape();
    return ProductOf(a, b).Propose(query);
  }
  bool RunOnDevice() override {
    RequireOnednnFloat32(*this);
    const Tensor &a = DenseInput(0), &b = DenseInput(1);
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    primitive_.Run(*this, inference().version(), {a.raw_data(), b.raw_data(), y->raw_data()},
                   [&](int threads) {
                     const detail::OnednnProduct product = ProductOf(a.shape(), b.shape());
                     return product.Cut(threads, product.WeightsOf(b));
                   });
    return true;
  }

 private:
  static detail::OnednnProduct ProductOf(const Shape& a, const Shape& b) {
    if (a.rank() < 2 || b.rank() != 2 || a.numel() == 0)
      throw UnsupportedOperatorFeature(
          StrCat("it multiplies rows by one matrix, not ", ToString(a), " by ", ToString(b)));
    return {a.numel() / a.dim(-1), b[1], b[0], false, false};
  }

  detail::OnednnPrimitive primitive_;
};

class GemmOnednnOp final : public GemmOpBase {
 public:
  using GemmOpBase::GemmOpBase;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireOnednnTensors(query, 3);
    const Arguments& args = query.def.args();
    const bool has_c = query.inputs.size() > 2 && !query.def.inputs()[2].empty();
    return ProductOf(query.inputs[0].shape.ToShape(), query.inputs[1].shape.ToShape(),
                     has_c ? query.inputs[2].shape.ToShape() : Shape{}, has_c,
                     args.Get<float>("alpha", 1.f), args.Get<float>("beta", 1.f),
                     args.Get<int64_t>("transA", 0) != 0, args.Get<int64_t>("transB", 0) != 0)
        .Propose(query);
  }
  bool RunOnDevice() override {
    RequireOnednnFloat32(*this);
    const Tensor &a = DenseInput(0), &b = DenseInput(1);
    Tensor* y = InferredOutput(0);
    primitive_.Run(*this, inference().version(),
                   {a.raw_data(), b.raw_data(), HasInput(2) ? DenseInput(2).raw_data() : nullptr,
                    y->raw_data()},
                   [&](int threads) {
                     const detail::OnednnProduct product =
                         ProductOf(a.shape(), b.shape(), HasInput(2) ? Input(2).shape() : Shape{},
                                   HasInput(2), alpha_, beta_, trans_a_, trans_b_);
                     return product.Cut(threads, product.WeightsOf(b));
                   });
    return true;
  }

 private:
  static detail::OnednnProduct ProductOf(const Shape& a, const Shape& b, const Shape& c, bool has_c,
                                         float alpha, float beta, bool trans_a, bool trans_b) {
    const int64_t n = b[trans_b ? 0 : 1], k = b[trans_b ? 1 : 0];
    if (trans_a || alpha != 1 || a.numel() == 0 || n == 0)
      throw UnsupportedOperatorFeature("it has no factor alpha, no transposed A, no empty A");
    if (has_c && (beta != 1 || c.rank() < 1 || c.dim(-1) != n || c.numel() != n))
      throw UnsupportedOperatorFeature("it adds a row C, with the factor 1, alone");
    return {a[0], n, k, trans_b, has_c};
  }

  detail::OnednnPrimitive primitive_;
};

OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(MatMul, onednn, MatMulOnednnOp);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Gemm, onednn, GemmOnednnOp);

}  // namespace opkit

#endif  // OPKIT_BACKENDS_ONEDNN_MATMUL_HPP_
