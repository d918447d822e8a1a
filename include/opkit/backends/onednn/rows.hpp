// Softmax, LogSoftmax and LayerNormalization of float32 in the standard layout for the "onednn"
// backend. Their rows are independent, so the work is cut by rows for the threads.
#ifndef OPKIT_BACKENDS_ONEDNN_ROWS_HPP_
#define OPKIT_BACKENDS_ONEDNN_ROWS_HPP_

#include <algorithm>
#include <cmath>
#include <limits>

#include "opkit/backends/onednn/primitive.hpp"
#include "opkit/ops/nn/layer_normalization.hpp"
#include "opkit/ops/nn/softmax.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Softmax and LogSoftmax along an axis of [outer, extent, inner]. For a row with a NaN or +infinity
// oneDNN computes numbers, but the result must be NaN. So such rows are found first and set to NaN
// afterwards.
template <bool kLog>
class SoftmaxOnednnOp final : public AxisOperator {
 public:
  using AxisOperator::AxisOperator;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireOnednnTensors(query);
    if (query.def.backends() != kOnednnBackend)
      throw UnsupportedOperatorFeature(
          "oneDNN's takes half as long again as Eigen's (bench/kernels); a node that asks for this "
          "backend gets it");
    KernelConfig config;
    config.inplace = {{0, 0}};
    return {config};
  }
  bool RunOnDevice() override {
    RequireOnednnFloat32(*this);
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    if (x.numel() == 0) return true;
    FindRowsOfNan(x);
    primitive_.Run(*this, inference().version(), {x.raw_data(), y->raw_data()}, [&](int threads) {
      const AxisSplit split(x.shape(), Axis(x.rank()));
      const int64_t parts =
          detail::OnednnPieces(kFlops * static_cast<double>(x.numel()), threads, split.outer);
      std::vector<detail::OnednnPiece> pieces;
      for (int64_t i = 0; i < parts; ++i) {
        const int64_t first = split.outer * i / parts, last = split.outer * (i + 1) / parts;
        const auto desc = detail::RowMajorDesc({last - first, split.extent, split.inner});
        const dnnl::softmax_forward::primitive_desc kernel(
            detail::OnednnEngine(), dnnl::prop_kind::forward_inference,
            kLog ? dnnl::algorithm::softmax_log : dnnl::algorithm::softmax_accurate, desc, desc, 1,
            detail::OnednnAttributes());
        const int64_t at = first * split.extent * split.inner;
        pieces.push_back({dnnl::softmax_forward(kernel),
                          {{DNNL_ARG_SRC, desc, at}, {DNNL_ARG_DST, desc, at}},
                          kernel.scratchpad_desc()});
      }
      return pieces;
    });
    const AxisSplit split(x.shape(), Axis(x.rank()));
    for (const int64_t row : rows_of_nan_) {
      float* out = static_cast<float*>(y->raw_mutable_data()) + split.Begin(row);
      for (int64_t k = 0; k < split.extent; ++k)
        out[k * split.inner] = std::numeric_limits<float>::quiet_NaN();
    }
    return true;
  }

 private:
  // Finds the rows with a NaN or +infinity. Must be called before the run, which may be in place.
  void FindRowsOfNan(const Tensor& tensor) {
    constexpr int64_t kBlock = 1024;
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const AxisSplit split(tensor.shape(), Axis(tensor.rank()));
    const float* x = tensor.data<float>();
    rows_of_nan_.clear();
    for (int64_t begin = 0; begin < tensor.numel(); begin += kBlock) {
      const int64_t end = (std::min)(begin + kBlock, tensor.numel());
      int32_t any = 0;  // an integer, so that the compiler vectorizes the loop
      for (int64_t i = begin; i < end; ++i) any |= !(x[i] < kInfinity);
      for (int64_t i = begin; any && i < end; ++i)
        if (!(x[i] < kInfinity))
          rows_of_nan_.push_back(i / (split.extent * split.inner) * split.inner + i % split.inner);
    }
    std::ranges::sort(rows_of_nan_);
    const auto repeated = std::ranges::unique(rows_of_nan_);
    rows_of_nan_.erase(repeated.begin(), repeated.end());
  }

  std::vector<int64_t> rows_of_nan_;
  static constexpr double kFlops = 16;  // operations for each element

  detail::OnednnPrimitive primitive_;
};

class LayerNormalizationOnednnOp final : public LayerNormalizationOpBase {
 public:
  using LayerNormalizationOpBase::LayerNormalizationOpBase;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireOnednnTensors(query, 3);
    const Shape x = query.inputs[0].shape.ToShape();
    const int axis =
        NormalizeAxis(query.def.args().Get<int64_t>("axis", -1), x.rank(), query.def.type());
    const int64_t columns = x.NumelBetween(axis, x.rank());
    for (size_t i = 1; i < query.inputs.size(); ++i)
      if (!query.def.inputs()[i].empty() && !IsRow(query.inputs[i].shape.ToShape(), x, columns))
        throw UnsupportedOperatorFeature(StrCat("it has a number for each column, and input ", i,
                                                " is ", ToString(query.inputs[i].shape),
                                                " beside X ", ToString(x)));
    if (query.outputs.size() > 1)
      throw UnsupportedOperatorFeature("it does not tell the mean and the deviation");
    detail::RequireOnednnWork(query, kFlops * static_cast<double>(x.numel()));
    KernelConfig config;
    config.inplace = {{0, 0}};
    return {config};
  }
  bool RunOnDevice() override {
    RequireOnednnFloat32(*this);
    if (OutputSize() > 1)
      throw UnsupportedOperatorFeature("it does not tell the mean and the deviation");
    const Tensor &x = DenseInput(0), &scale = DenseInput(1);
    const Tensor* bias = HasInput(2) ? &DenseInput(2) : nullptr;
    Tensor* y = InferredOutput(0);
    if (x.numel() == 0) return true;
    primitive_.Run(
        *this, inference().version(),
        {x.raw_data(), scale.raw_data(), bias ? bias->raw_data() : nullptr, y->raw_data()},
        [&](int threads) {
          const Sizes sizes = SizesOf(x.shape());
          for (const Tensor* row : {&scale, bias})
            if (row && !IsRow(row->shape(), x.shape(), sizes.columns))
              throw UnsupportedOperatorFeature("it has a number for each column");
          const auto row = detail::RowMajorDesc({sizes.columns});
          const auto flags =
              dnnl::normalization_flags::use_scale |
              (bias ? dnnl::normalization_flags::use_shift : dnnl::normalization_flags::none);
          const int64_t parts =
              detail::OnednnPieces(kFlops * static_cast<double>(x.numel()), threads, sizes.rows);
          std::vector<detail::OnednnPiece> pieces;
          for (int64_t i = 0; i < parts; ++i) {
            const int64_t first = sizes.rows * i / parts, last = sizes.rows * (i + 1) / parts;
            const auto desc = detail::RowMajorDesc({last - first, sizes.columns});
            const dnnl::layer_normalization_forward::primitive_desc kernel(
                detail::OnednnEngine(), dnnl::prop_kind::forward_inference, desc, desc, epsilon_,
                flags, detail::OnednnAttributes());
            const int64_t at = first * sizes.columns;
            detail::OnednnPiece& piece = pieces.emplace_back();
            piece.primitive = dnnl::layer_normalization_forward(kernel);
            piece.arguments = {{DNNL_ARG_SRC, desc, at}, {DNNL_ARG_SCALE, row}};
            if (bias) piece.arguments.push_back({DNNL_ARG_SHIFT, row});
            piece.arguments.push_back({DNNL_ARG_DST, desc, at});
            piece.scratchpad = kernel.scratchpad_desc();
          }
          return pieces;
        });
    return true;
  }

 private:
  static constexpr double kFlops = 40;  // number of operations that take as long as one element

  detail::OnednnPrimitive primitive_;
};

OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Softmax, onednn, SoftmaxOnednnOp<false>);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(LogSoftmax, onednn, SoftmaxOnednnOp<true>);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(LayerNormalization, onednn, LayerNormalizationOnednnOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_ONEDNN_ROWS_HPP_
