// MatMul and Gemm of float32 and bfloat16 for the "onednn" backend. The plan packs a constant right
// factor once and fuses the elementwise nodes that follow (FusedMatMul).
#ifndef OPKIT_BACKENDS_ONEDNN_MATMUL_HPP_
#define OPKIT_BACKENDS_ONEDNN_MATMUL_HPP_

#include "opkit/backends/onednn/blocks.hpp"
#include "opkit/backends/onednn/epilogue.hpp"
#include "opkit/ops/math/matmul.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The product Y = X W + B with X [m, k], W [k, n] (stored as [n, k] with `transposed`) and B [n].
// Makes oneDNN's primitives.
struct OnednnProduct {
  int64_t m, n, k;
  OnednnType type;
  bool transposed, has_bias;
  OnednnEpilogue epilogue = {};
  std::vector<OnednnOperand> operands = {};  // operands of the epilogue

  using Desc = dnnl::memory::desc;
  using Kernel = dnnl::matmul::primitive_desc;

  Desc StandardWeights() const {
    const dnnl::memory::dims strides =
        transposed ? dnnl::memory::dims{1, k} : dnnl::memory::dims{n, 1};
    return {{k, n}, type, strides};
  }
  Desc AnyWeights() const { return {{k, n}, type, dnnl::memory::format_tag::any}; }
  // Returns oneDNN's kernel for weights of this format. Throws dnnl::error if oneDNN has none.
  Kernel Make(const Desc& w) const {
    const Desc x = RowMajorDesc({m, k}, type), y = RowMajorDesc({m, n}, type);
    const dnnl::primitive_attr attributes = epilogue.Attributes(OperandDescs());
    if (!has_bias) return Kernel(OnednnEngine(), x, w, y, attributes);
    return Kernel(OnednnEngine(), x, w, RowMajorDesc({1, n}, type), y, attributes);
  }
  std::vector<Desc> OperandDescs() const {
    std::vector<Desc> descs;
    for (const OnednnOperand operand : operands)
      descs.push_back(RowMajorDesc(
          {operand == OnednnOperand::kWhole ? m : 1, operand == OnednnOperand::kNumber ? 1 : n},
          type));
    return descs;
  }
  // Returns how an operand is broadcast to an output [..., n].
  static OnednnOperand OperandOf(const Shape& shape, const Shape& y) {
    if (shape == y) return OnednnOperand::kWhole;
    if (shape.numel() == 1) return OnednnOperand::kNumber;
    const bool is_row = shape.rank() > 0 && shape.rank() <= y.rank() &&
                        shape.dim(-1) == y.dim(-1) && shape.numel() == y.dim(-1);
    return is_row ? OnednnOperand::kChannels : OnednnOperand::kOther;
  }
  // Cuts the product by rows of X into pieces for `threads` threads.
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
      std::vector<int64_t> begins;
      for (const OnednnOperand operand : operands)
        begins.push_back(operand == OnednnOperand::kWhole ? first * n : 0);
      epilogue.AddArguments(part.OperandDescs(), begins, piece);
      piece.scratchpad = kernel.scratchpad_desc();
    }
    return pieces;
  }
  // Proposes a configuration in which oneDNN packs the weights, if input 1 is constant. For other
  // weights proposes their standard layout, but only for bfloat16. Throws
  // UnsupportedOperatorFeature if other backends are as fast.
  std::vector<KernelConfig> Propose(const KernelQuery& query) const {
    constexpr int64_t kLeastRows = 4;  // with fewer rows, packing does not pay
    // Other backends have only plain loops for bfloat16.
    const bool has_rivals = type == OnednnType::f32;
    const bool packs = query.inputs[1].constant;
    if (!packs && has_rivals)
      throw UnsupportedOperatorFeature(
          "its right factor is not constant, and without packing other backends are as fast");
    const double flops =
        2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    const bool is_small = m < kLeastRows || flops < kOnednnLeastFlops;
    if (is_small && has_rivals && query.def.backends() != kOnednnBackend)
      throw UnsupportedOperatorFeature(StrCat("a product of ", m, " rows and ",
                                              static_cast<int64_t>(flops),
                                              " operations is too small to gain by packing"));
    try {
      const OnednnScope scope;
      const Kernel kernel = Make(packs ? AnyWeights() : StandardWeights());
      KernelConfig config;
      config.input_layouts.resize(query.inputs.size());
      config.input_layouts[1] = OnednnLayout(kernel.weights_desc(), StandardWeights());
      config.output_layouts.resize(1);
      return {config};
    } catch (const dnnl::error& error) {
      throw UnsupportedOperatorFeature(StrCat("oneDNN has no kernel for it: ", error.what()));
    }
  }
  Desc WeightsOf(const Layout& layout) const {
    return layout.is_standard() ? StandardWeights() : OnednnDescriptorOf(layout).desc();
  }
};

// A MatMul or Gemm with the nodes that plans fuse behind it: Y = A B + C, then the steps of an
// epilogue. Its inputs are A, B ([n, k] with `transB`), an optional row C, and the operands of the
// steps.
class FusedMatMul {
 public:
  static constexpr const char* kType = "FusedMatMul";
  static constexpr size_t kFirstOperand = 3;

  // Fuses the next node of `asked`. `node` is the query's node, converted to a FusedMatMul. Returns
  // nullopt if oneDNN cannot compute both in one pass.
  static std::optional<FusedNode> Fuse(const FusionQuery& asked, const OperatorDef& node) {
    const FusionQuery query{{node, asked.node.inputs, asked.node.outputs},
                            asked.config,
                            asked.next,
                            asked.next_config,
                            asked.read};
    int operand = -1;
    const auto step = OnednnEpilogue::StepOf(query, operand);
    if (!step || !OnednnEpilogue::KeepsOutput(query)) return {};
    const Shape y = query.next.outputs[0].shape.ToShape();
    const OnednnEpilogue before(node, kFirstOperand);
    std::vector<OnednnOperand> spreads;
    const size_t given = query.node.inputs.size();
    for (size_t i = given - before.operands(); i < given; ++i)
      spreads.push_back(OperandOf(query.node.inputs[i], y));
    std::optional<Layout> layout = Layout();
    if (operand >= 0) {
      const TensorInfo& info = query.next.inputs[Index(operand)];
      spreads.push_back(OperandOf(info, y));
      layout = OnednnEpilogue::OperandLayout(query, operand, false);
      if (spreads.back() == OnednnOperand::kOther || !layout) return {};
    }
    FusedNode made = OnednnEpilogue::Extended(query, kType, kFirstOperand, *step, operand, *layout);
    const bool is_bias = step->name == "Add" && spreads.size() == 1 && before.empty() &&
                         spreads[0] == OnednnOperand::kChannels && node.inputs()[2].empty();
    if (is_bias) {
      made.def = node;
      made.def.mutable_outputs() = query.next.def.outputs();
      made.def.mutable_inputs()[2] = query.next.def.inputs()[Index(operand)];
      made.config.input_layouts.resize(kFirstOperand);
      return made;
    }
    const Shape w = query.node.inputs[1].shape.ToShape();
    OnednnProduct product = ProductOf(made.def, query.node.inputs[0].shape.ToShape(), w,
                                      OnednnTypeOf(query.node.inputs[0].dtype));
    product.operands = std::move(spreads);
    try {
      const OnednnScope scope;
      const auto kernel = product.Make(product.WeightsOf(made.config.input_layouts[1]));
      if (IsOnednnReference(kernel)) return {};
    } catch (const dnnl::error&) {
      return {};
    }
    return made;
  }
  static OnednnProduct ProductOf(const OperatorDef& def, const Shape& a, const Shape& b,
                                 OnednnType type) {
    const bool transposed = def.args().Get<int64_t>("transB", 0) != 0;
    const bool has_bias = def.inputs().size() > 2 && !def.inputs()[2].empty();
    return {a.numel() / a.dim(-1),
            b[transposed ? 0 : 1],
            a.dim(-1),
            type,
            transposed,
            has_bias,
            OnednnEpilogue(def, kFirstOperand)};
  }

 private:
  static OnednnOperand OperandOf(const TensorInfo& info, const Shape& y) {
    return OnednnProduct::OperandOf(info.shape.ToShape(), y);
  }
};

inline void InferFusedMatMul(InferenceContext& c) {
  const SymbolicShape &a = c.input_shape(0), &b = c.input_shape(1);
  SymbolicShape y = a;
  if (a.has_rank() && a.rank() > 0 && b.has_rank() && b.rank() == 2)
    y[y.rank() - 1] = b[c.Arg<int64_t>("transB") != 0 ? 0 : 1];
  else
    y = {};
  c.SetOutput(0, c.input_dtype(0), y);
}

}  // namespace detail

// Computes all rows of a batch as one product.
class MatMulOnednnOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    const DType dtype = query.inputs[0].dtype;
    const detail::OnednnType type = detail::RequireOnednnType(dtype);
    RequireOnednnTensors(query, 2, dtype);
    const Shape a = query.inputs[0].shape.ToShape(), b = query.inputs[1].shape.ToShape();
    return ProductOf(a, b, type).Propose(query);
  }
  static std::optional<FusedNode> Fuse(const FusionQuery& query) {
    OperatorDef node = query.node.def;
    node.Type(detail::FusedMatMul::kType)
        .mutable_inputs()
        .resize(detail::FusedMatMul::kFirstOperand);
    return detail::FusedMatMul::Fuse(query, node);
  }
  bool RunOnDevice() override {
    const detail::OnednnType type = detail::RequireOnednnType(Input(0).dtype());
    const Tensor &a = DenseInput(0), &b = DenseInput(1);
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    primitive_.Run(*this, inference().version(), {a.raw_data(), b.raw_data(), y->raw_data()},
                   [&](int threads) {
                     const detail::OnednnProduct product = ProductOf(a.shape(), b.shape(), type);
                     return product.Cut(threads, product.WeightsOf(b.layout()));
                   });
    return true;
  }

 private:
  static detail::OnednnProduct ProductOf(const Shape& a, const Shape& b, detail::OnednnType type) {
    if (a.rank() < 2 || b.rank() != 2 || a.numel() == 0)
      throw UnsupportedOperatorFeature(
          StrCat("it multiplies rows by one matrix, not ", ToString(a), " by ", ToString(b)));
    return {a.numel() / a.dim(-1), b[1], b[0], type, false, false};
  }

  detail::OnednnPrimitive primitive_;
};

class GemmOnednnOp final : public GemmOpBase {
 public:
  using GemmOpBase::GemmOpBase;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    const DType dtype = query.inputs[0].dtype;
    const detail::OnednnType type = detail::RequireOnednnType(dtype);
    RequireOnednnTensors(query, 3, dtype);
    std::optional<Shape> c;
    if (query.inputs.size() > 2 && !query.def.inputs()[2].empty())
      c = query.inputs[2].shape.ToShape();
    return ProductOf(detail::GemmAttributes(query.def), query.inputs[0].shape.ToShape(),
                     query.inputs[1].shape.ToShape(), c, type)
        .Propose(query);
  }
  // Copies transB only, because Propose refuses the other attributes of Gemm.
  static std::optional<FusedNode> Fuse(const FusionQuery& query) {
    const OperatorDef& def = query.node.def;
    OperatorDef node(detail::FusedMatMul::kType, def.inputs(), def.outputs(),
                     {{"transB", def.args().Get<int64_t>("transB", 0)}});
    node.mutable_inputs().resize(detail::FusedMatMul::kFirstOperand);
    return detail::FusedMatMul::Fuse(query, node.Name(def.name()).Device(def.device()));
  }
  bool RunOnDevice() override {
    const detail::OnednnType type = detail::RequireOnednnType(Input(0).dtype());
    const Tensor &a = DenseInput(0), &b = DenseInput(1);
    Tensor* y = InferredOutput(0);
    primitive_.Run(*this, inference().version(),
                   {a.raw_data(), b.raw_data(), HasInput(2) ? DenseInput(2).raw_data() : nullptr,
                    y->raw_data()},
                   [&](int threads) {
                     std::optional<Shape> c;
                     if (HasInput(2)) c = Input(2).shape();
                     const detail::OnednnProduct product =
                         ProductOf(gemm_, a.shape(), b.shape(), c, type);
                     return product.Cut(threads, product.WeightsOf(b.layout()));
                   });
    return true;
  }

 private:
  // `c`: nullopt without a C.
  static detail::OnednnProduct ProductOf(const detail::GemmAttributes& attributes, const Shape& a,
                                         const Shape& b, const std::optional<Shape>& c,
                                         detail::OnednnType type) {
    const auto& [alpha, beta, trans_a, trans_b] = attributes;
    const int64_t n = b[trans_b ? 0 : 1], k = b[trans_b ? 1 : 0];
    if (trans_a || alpha != 1 || a.numel() == 0 || n == 0)
      throw UnsupportedOperatorFeature("it has no factor alpha, no transposed A, no empty A");
    if (c && (beta != 1 || c->rank() < 1 || c->dim(-1) != n || c->numel() != n))
      throw UnsupportedOperatorFeature("it adds a row C, with the factor 1, alone");
    return {a[0], n, k, type, trans_b, c.has_value()};
  }

  detail::OnednnPrimitive primitive_;
};

class FusedMatMulOnednnOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

  static std::vector<KernelConfig> Propose(const KernelQuery&) {
    throw UnsupportedOperatorFeature("only plans make it, of a product that was selected");
  }
  static std::optional<FusedNode> Fuse(const FusionQuery& query) {
    return detail::FusedMatMul::Fuse(query, query.node.def);
  }
  bool RunOnDevice() override {
    const detail::OnednnType type = detail::RequireOnednnType(Input(0).dtype());
    const Tensor &a = DenseInput(0), &b = DenseInput(1);
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    pointers_.assign({a.raw_data(), b.raw_data(), HasInput(2) ? DenseInput(2).raw_data() : nullptr,
                      y->raw_data()});
    const auto operand = [&](size_t i) -> const Tensor& {
      return DenseInput(static_cast<int>(detail::FusedMatMul::kFirstOperand + i));
    };
    for (size_t i = 0; i < epilogue_.operands(); ++i) pointers_.push_back(operand(i).raw_data());
    primitive_.Run(*this, inference().version(), pointers_, [&](int threads) {
      detail::OnednnProduct product =
          detail::FusedMatMul::ProductOf(def(), a.shape(), b.shape(), type);
      for (size_t i = 0; i < epilogue_.operands(); ++i)
        product.operands.push_back(
            detail::OnednnProduct::OperandOf(operand(i).shape(), y->shape()));
      return product.Cut(threads, product.WeightsOf(b.layout()));
    });
    return true;
  }

 private:
  const detail::OnednnEpilogue epilogue_{def(), detail::FusedMatMul::kFirstOperand};
  std::vector<const void*> pointers_;  // the arguments of a run
  detail::OnednnPrimitive primitive_;
};

OPKIT_OPERATOR_SCHEMA(FusedMatMul)
    .Doc("Y = A B + C, and what is done to each element of it in the same pass.")
    .Private()
    .NumInputs(2, 64)
    .NumOutputs(1)
    .Input(0, "A", "[..., M, K]")
    .Input(1, "B", "[K, N], or with transB [N, K]")
    .Input(2, "C", "optional: [N]; behind it what the steps read, in their order")
    .Output(0, "Y", "[..., M, N]")
    .Arg<int64_t>("transB", "whether B is transposed", 0)
    .FillUsing(&detail::OnednnEpilogue::Describe)
    .Infer(&detail::InferFusedMatMul)
    .Flops([](auto& c) { return detail::ProductFlops(c.output(0), c.input(0), -1); });
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(FusedMatMul, onednn, FusedMatMulOnednnOp);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(MatMul, onednn, MatMulOnednnOp);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Gemm, onednn, GemmOnednnOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_ONEDNN_MATMUL_HPP_
