// QuantizeLinear and DequantizeLinear: between numbers and small integers, or numbers of 4 or 8
// bits, with one scale for a tensor, for each index of an axis, or for each block of an axis.
// Sources: https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html and
// onnx__DequantizeLinear.html, opset 25.
#ifndef OPKIT_OPS_QUANTIZED_QUANTIZE_LINEAR_HPP_
#define OPKIT_OPS_QUANTIZED_QUANTIZE_LINEAR_HPP_

#include <cmath>

#include "opkit/graph/passes/quantized_nodes.hpp"
#include "opkit/ops/quantized/quantize_loops.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Throws unless x and scale, of rank 1 or more, fit the attributes axis and block_size.
inline void CheckScaleShape(const InferenceContext& c, const SymbolicShape& x,
                            const SymbolicShape& scale) {
  const std::string& op = c.def().type();
  const auto block = c.Arg<int64_t>("block_size");
  if (block < 0)
    Throw(ErrorCode::kInvalidArgument, op, ": block_size is ", block, ", expected 0 or more");
  if (!x.has_rank() || !scale.has_rank()) return;
  const auto refuse = [&](auto&&... expected) {
    Throw(ErrorCode::kInvalidArgument, op, ": x is ", ToString(x), " and the scale is ",
          ToString(scale), ", expected ", expected...);
  };
  const bool is_one = scale.rank() == 0 || (scale.rank() == 1 && scale[0] == Dim(1));
  if (is_one && block == 0) return;
  auto axis = c.Arg<int64_t>("axis");
  if (axis < -x.rank() || axis >= x.rank())
    Throw(ErrorCode::kInvalidArgument, op, ": axis is ", axis, ", but x is ", ToString(x));
  if (axis < 0) axis += x.rank();
  const int along = static_cast<int>(axis);
  if (block == 0) {
    if (scale.rank() != 1 || !Dim::Compatible(scale[0], x[along]))
      refuse("one scale, or one for each index of axis ", axis,
             " (for blocks, the attribute block_size)");
    return;
  }
  if (scale.rank() != x.rank()) refuse("equal ranks, since block_size is ", block);
  for (int i = 0; i < x.rank(); ++i) {
    Dim blocks = x[i];
    if (i == along)
      blocks = x[i].is_known() ? Dim(x[i].value() / block + (x[i].value() % block != 0)) : Dim();
    if (!Dim::Compatible(scale[i], blocks))
      refuse(ToString(blocks), " scales along axis ", i, " (block_size is ", block, ")");
  }
}

// Infers both operators: the output has the shape of x, the zero point that of the scale.
inline void InferQuantization(InferenceContext& c, DType output) {
  CheckScaleShape(c, c.input_shape(0), c.input_shape(1));
  if (c.HasInput(2)) {
    const SymbolicShape &scale = c.input_shape(1), &zero_point = c.input_shape(2);
    const auto is_scalar = [](const SymbolicShape& s) {
      return s.has_rank() && (s.rank() == 0 || (s.rank() == 1 && s[0] == Dim(1)));
    };
    if (!is_scalar(scale) || !is_scalar(zero_point)) c.SetInput(2, DType::kUndefined, scale);
  }
  c.SetOutput(0, output, c.input_shape(0));
}

inline void InferQuantizeLinear(InferenceContext& c) {
  const auto number = c.Arg<int64_t>("output_dtype");
  DType dtype = OnnxDType(number);
  if (number != 0 && !Contains(QuantizedDTypes(), dtype))
    Throw(ErrorCode::kInvalidArgument, "QuantizeLinear: output_dtype is ", number,
          ", expected the number of one of ", QuantizedDTypes());
  if (c.HasInput(2))
    c.SetInput(2, dtype, {}), dtype = c.input_dtype(2);
  else if (number == 0)
    dtype = DType::kUInt8;
  InferQuantization(c, dtype);
}

inline void InferDequantizeLinear(InferenceContext& c) {
  if (c.HasInput(2)) {
    c.SetInput(2, c.input_dtype(0), {});
    c.SetInput(0, c.input_dtype(2), {});
  }
  const auto number = c.Arg<int64_t>("output_dtype");
  DType dtype = OnnxDType(number);
  if (number != 0 && !ScaleTypes::Has(dtype))
    Throw(ErrorCode::kInvalidArgument, "DequantizeLinear: output_dtype is ", number,
          ", expected the number of one of ", ScaleTypes::DTypes());
  if (number == 0) dtype = c.input_dtype(1);
  if (dtype == DType::kFloat8E8M0)
    Throw(ErrorCode::kInvalidArgument, "DequantizeLinear: the scale is ", dtype,
          ", so output_dtype must say the output's type");
  InferQuantization(c, dtype);
}

// The elements that a thread converts at a time.
inline constexpr int64_t kQuantizedGrain = 64 * kQuantizedBlock;

// Runs of neighbouring elements whose scales are one element (scale_step 0) or neighbours (1).
struct ScaledRuns {
  int64_t count = 1, length = 1, scale_step = 0;

  // Shapes and attributes must have passed inference.
  ScaledRuns(const Shape& x, const Shape& scale, int64_t axis, int64_t block) {
    if (scale.numel() == 1 && block == 0) {
      length = x.numel();
      return;
    }
    if (axis < 0) axis += x.rank();
    for (int i = 0; i < axis; ++i) outer_ *= x[i];
    along_ = x[static_cast<int>(axis)];
    for (int i = static_cast<int>(axis) + 1; i < x.rank(); ++i) inner_ *= x[i];
    block_ = block;
    blocks_ = block == 0 ? along_ : scale[static_cast<int>(axis)];
    in_blocks_ = inner_ == 1 && block > 0;
    whole_axis_ = inner_ == 1 && block == 0;
    count = outer_ * (whole_axis_ ? 1 : in_blocks_ ? blocks_ : along_);
    length = whole_axis_ ? along_ : in_blocks_ ? (std::min)(block, along_) : inner_;
    scale_step = whole_axis_ || (block > 0 && !in_blocks_) ? 1 : 0;
  }
  // The first element of a run, its number of elements, and the first scale.
  struct Run {
    int64_t at, n, scale;
  };
  Run At(int64_t run) const {
    if (count == 1 || whole_axis_) return {run * length, length, 0};
    if (in_blocks_) {
      const int64_t first = run % blocks_ * block_;
      return {run / blocks_ * along_ + first, (std::min)(block_, along_ - first), run};
    }
    const int64_t index = run % along_;
    const int64_t scale = block_ == 0 ? index : (run / along_ * blocks_ + index / block_) * inner_;
    return {run * inner_, inner_, scale};
  }
  // True if there are several runs, and run r has `length` elements from r * length on, and scale
  // r.
  bool has_scale_of_own() const {
    if (count == 1) return false;
    return in_blocks_ ? along_ % block_ == 0 : scale_step == 0 && block_ == 0 && outer_ == 1;
  }
  // Returns the number of the scale of an element.
  OPKIT_HOST_DEVICE int64_t ScaleOf(int64_t element) const {
    if (blocks_ == 0) return 0;
    const int64_t index = element / inner_ % along_;
    if (block_ == 0) return index;
    return (element / inner_ / along_ * blocks_ + index / block_) * inner_ + element % inner_;
  }
  // Calls f(run, first, last) for elements [first, last) of each run, on several threads. `first`
  // is a multiple of kQuantizedBlock.
  template <class F>
  void ForEach(F&& f) const {
    if (count == 1)
      ParallelForRange(length, kQuantizedGrain,
                       [&](int64_t first, int64_t last) { f(At(0), first, last); });
    else
      ParallelForRange(count, kQuantizedGrain / length + 1, [&](int64_t begin, int64_t end) {
        for (int64_t run = begin; run < end; ++run) {
          const Run elements = At(run);
          f(elements, 0, elements.n);
        }
      });
  }

 private:
  // `blocks_` are those of the axis, or its indices if it has no blocks; 0 for one scale.
  int64_t outer_ = 1, along_ = 1, inner_ = 1, block_ = 0, blocks_ = 0;
  bool in_blocks_ = false, whole_axis_ = false;
};

// The arguments of the loop over one block of at most kQuantizedBlock elements. `step` is the
// distance between the scales of two elements, and between their zero points: 0 or 1.
template <class Number>
struct QuantizedRun {
  const Number* x;
  const Number* zero_point;
  const float* scale;
  int64_t step, n;
};
using StoreQuantized = void (*)(const QuantizedRun<float>& run, void* out, int64_t at);
template <class T>
void QuantizeRun(const QuantizedRun<float>& run, void* out, int64_t at) {
  T y[kQuantizedBlock];  // elements of `out` could be the run, for all the compiler knows
  const auto [x, zero_points, scales, step, n] = run;
  if (step == 0) {
    const float scale = *scales, zero_point = *zero_points;
    for (int64_t i = 0; i < n; ++i) y[i] = Quantize<T>(x[i] / scale, zero_point);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = Quantize<T>(x[i] / scales[i], zero_points[i]);
  }
  std::memcpy(static_cast<T*>(out) + at, y, Index(n) * sizeof(T));
}
// Stores the codes of numbers in a small dtype, one in a byte.
template <DType kDType, Overflow kOverflow>
void QuantizeSmallRun(const QuantizedRun<float>& run, void* out, int64_t at) {
  uint8_t* y = static_cast<uint8_t*>(out) + at;
  const PackedLimits limits(kDType);
  const auto low = static_cast<float>(limits.low), high = static_cast<float>(limits.high);
  for (int64_t i = 0; i < run.n; ++i) {
    const float scaled = run.x[i] / run.scale[i * run.step];
    const float zero_point = run.zero_point[i * run.step];
    if constexpr (kDType == DType::kFloat4E2M1 || IsFloat8(kDType))
      y[i] = SmallFloatCode(kDType, scaled + zero_point, {kOverflow});
    else
      y[i] = static_cast<uint8_t>(Quantize<int8_t>(scaled, zero_point, low, high));
  }
}
// Returns the store of a small dtype; null for another dtype.
template <Overflow kOverflow>
StoreQuantized FindStoreSmall(DType dtype) {
  switch (dtype) {
    case DType::kInt2:
      return &QuantizeSmallRun<DType::kInt2, kOverflow>;
    case DType::kUInt2:
      return &QuantizeSmallRun<DType::kUInt2, kOverflow>;
    case DType::kInt4:
      return &QuantizeSmallRun<DType::kInt4, kOverflow>;
    case DType::kUInt4:
      return &QuantizeSmallRun<DType::kUInt4, kOverflow>;
    case DType::kFloat4E2M1:
      return &QuantizeSmallRun<DType::kFloat4E2M1, kOverflow>;
    case DType::kFloat8E4M3FN:
      return &QuantizeSmallRun<DType::kFloat8E4M3FN, kOverflow>;
    case DType::kFloat8E4M3FNUZ:
      return &QuantizeSmallRun<DType::kFloat8E4M3FNUZ, kOverflow>;
    case DType::kFloat8E5M2:
      return &QuantizeSmallRun<DType::kFloat8E5M2, kOverflow>;
    case DType::kFloat8E5M2FNUZ:
      return &QuantizeSmallRun<DType::kFloat8E5M2FNUZ, kOverflow>;
    default:
      return nullptr;
  }
}

// Returns (q - zero_point) * scale. The difference wraps around, which only int32 beside a zero
// point can reach.
template <class T>
OPKIT_HOST_DEVICE T Dequantize(int32_t q, int32_t zero_point, float scale) {
  const uint32_t difference = static_cast<uint32_t>(q) - static_cast<uint32_t>(zero_point);
  return static_cast<T>(static_cast<float>(static_cast<int32_t>(difference)) * scale);
}
using StoreDequantized = void (*)(const QuantizedRun<int32_t>& run, void* out, int64_t at);
template <class T>
void DequantizeRun(const QuantizedRun<int32_t>& run, void* out, int64_t at) {
  T* y = static_cast<T*>(out) + at;
  const auto [x, zero_points, scales, step, n] = run;
  if (step == 0) {
    const int32_t zero_point = *zero_points;
    const float scale = *scales;
    for (int64_t i = 0; i < n; ++i) y[i] = Dequantize<T>(x[i], zero_point, scale);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = Dequantize<T>(x[i], zero_points[i], scales[i]);
  }
}
// The same for the small floating-point types.
using StoreDequantizedFloats = void (*)(const QuantizedRun<float>& run, void* out, int64_t at);
template <class T>
void DequantizeFloatRun(const QuantizedRun<float>& run, void* out, int64_t at) {
  T* y = static_cast<T*>(out) + at;
  const int64_t step = run.step;
  for (int64_t i = 0; i < run.n; ++i)
    y[i] = static_cast<T>((run.x[i] - run.zero_point[i * step]) * run.scale[i * step]);
}

}  // namespace detail

// The base of both operators. Converts x and zero points to Number and scales to float, block by
// block.
class QuantizationOp : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

 protected:
  detail::ScaledRuns Runs(const Tensor& x, const Tensor& scale) const {
    return detail::ScaledRuns(x.shape(), scale.shape(), axis_, block_);
  }
  // Calls `store` for the blocks of x, with `to` as `out`.
  template <class Number, class XTypes, class ZeroPointTypes>
  void ForEachBlock(void (*store)(const detail::QuantizedRun<Number>& run, void* out, int64_t at),
                    const Tensor& x, const Tensor& scale, void* to) {
    using Run = detail::QuantizedRun<Number>;
    const Tensor* zero_point = HasInput(2) ? &DenseInput(2) : nullptr;
    const auto load_x = Load<Number, XTypes>(x.dtype());
    const auto load_scale = Load<float, ScaleTypes>(scale.dtype());
    const auto load_zero =
        Load<Number, ZeroPointTypes>(zero_point ? zero_point->dtype() : x.dtype());
    if (!load_x || !load_scale || (zero_point && !load_zero) || !store)
      Throw(ErrorCode::kTypeMismatch, type(), " does not compute ", x, " with the scale ", scale);
    const detail::ScaledRuns runs = Runs(x, scale);
    const void *from = x.raw_data(), *scales = scale.raw_data();
    const void* zeros = zero_point ? zero_point->raw_data() : nullptr;
    constexpr int64_t kBlock = detail::kQuantizedBlock;
    runs.ForEach([=](const detail::ScaledRuns::Run& of, int64_t first, int64_t last) {
      Number number[kBlock], zero[kBlock] = {};
      float factor[kBlock];
      const int64_t step = runs.scale_step;
      for (int64_t at = first; at < last; at += kBlock) {
        const int64_t n = (std::min)(kBlock, last - at);
        const int64_t scale_at = of.scale + at * step, scale_n = step == 0 ? 1 : n;
        Run run = {};
        run.x = load_x(from, of.at + at, n, number);
        run.scale = load_scale(scales, scale_at, scale_n, factor);
        run.zero_point = zeros ? load_zero(zeros, scale_at, scale_n, zero) : zero;
        run.step = step;
        run.n = n;
        store(run, to, of.at + at);
      }
    });
  }
  // Calls `loop` for the runs of elements. The scale is of float32, the zero point of T.
  template <class T, class From, class To>
  void ForEachRun(void (*loop)(const From* x, const detail::ByteScales<T>& by, int64_t runs,
                               int64_t n, To* y),
                  To* y) {
    static constexpr T kZero = 0;
    const Tensor &x = DenseInput(0), &scale = DenseInput(1);
    const From* from = x.template data<From>();
    const float* scales = scale.data<float>();
    const T* zeros = HasInput(2) ? DenseInput(2).template data<T>() : nullptr;
    const detail::ScaledRuns runs(x.shape(), scale.shape(), axis_, block_);
    const int64_t step = runs.scale_step, zero_step = zeros ? 1 : 0;
    const T* const known_zeros = zeros ? zeros : &kZero;
    if (runs.has_scale_of_own()) {
      ParallelForRange(
          runs.count, detail::kQuantizedGrain / runs.length + 1, [&](int64_t first, int64_t last) {
            const int64_t at = first * runs.length;
            loop(from + at, {scales + first, known_zeros + first * zero_step, step, zero_step},
                 last - first, runs.length, y + at);
          });
      return;
    }
    runs.ForEach([=](const detail::ScaledRuns::Run& of, int64_t first, int64_t last) {
      const int64_t scale_at = of.scale + first * step, at = of.at + first;
      loop(from + at, {scales + scale_at, known_zeros + scale_at * zero_step, step, zero_step}, 1,
           last - first, y + at);
    });
  }

 private:
  template <class Number, class Types>
  static detail::LoadBlock<Number> Load(DType dtype) {
    const auto load = detail::FindLoadBlock<Number, Types>(dtype);
    return load ? load : detail::FindLoadSmall<Number>(dtype);
  }

  const int64_t axis_ = GetSingleArgument<int64_t>("axis");
  const int64_t block_ = GetSingleArgument<int64_t>("block_size");
};

class QuantizeLinearOp final : public QuantizationOp {
 public:
  using QuantizationOp::QuantizationOp;
  static std::vector<DType> ScaleDTypes() {
    std::vector<DType> all = opkit::ScaleDTypes();
    all.push_back(DType::kInt32);
    return all;
  }
  bool RunOnDevice() override {
    using XTypes = ElementTypes<float, float16, bfloat16, int32_t>;
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    const DType dtype = y->dtype();
    if (Input(0).dtype() == DType::kFloat32 && Input(1).dtype() == DType::kFloat32 &&
        ByteTypes::Visit(dtype, [&]<class T>() {
          ForEachRun<T>(detail::BestQuantizeLoops<T>().quantize, y->mutable_data<T>());
        }))
      return true;
    auto store = QuantizedTypes::Find<detail::StoreQuantized>(
        dtype, []<class T>() { return &detail::QuantizeRun<T>; });
    if (!store)
      store = saturate_ ? detail::FindStoreSmall<Overflow::kSaturates>(dtype)
                        : detail::FindStoreSmall<Overflow::kIsInfinite>(dtype);
    // Threads must not write to one byte, so packed elements are packed after all are converted.
    if (IsPacked(dtype)) codes_.resize(static_cast<size_t>(y->numel()));
    Tensor x = DenseInput(0), scale = DenseInput(1);
    if (scale.dtype() == DType::kInt32) {
      XTypes::Visit(x.dtype(), [&]<class T>() { x = Quotients<T>(x, scale, dtype); });
      scale =
          Tensor::From<float>(scale.shape(), std::vector<float>(detail::Index(scale.numel()), 1.f));
    }
    ForEachBlock<float, XTypes, QuantizedTypes>(
        store, x, scale, IsPacked(dtype) ? codes_.data() : y->raw_mutable_data());
    if (IsPacked(dtype)) Pack(codes_.data(), BitSize(dtype), 0, y->numel(), y->raw_mutable_data());
    return true;
  }

 private:
  // Returns x / scale for a scale of integers, divided in double. What becomes an integer is
  // rounded here: in float, a quotient near the middle between two integers could lie there.
  template <class T>
  Tensor Quotients(const Tensor& x, const Tensor& scale, DType to) const {
    const bool rounds = !IsFloat8(to) && to != DType::kFloat4E2M1;
    Tensor out(x.shape(), DType::kFloat32);
    const T* in = x.data<T>();
    const int32_t* scales = scale.data<int32_t>();
    auto* quotients = out.mutable_data<float>();
    const detail::ScaledRuns runs = Runs(x, scale);
    ParallelFor(runs.count, [&](int64_t run) {
      const auto [at, n, first] = runs.At(run);
      for (int64_t i = 0; i < n; ++i) {
        const double quotient =
            static_cast<double>(in[at + i]) / scales[first + i * runs.scale_step];
        quotients[at + i] = static_cast<float>(rounds ? std::nearbyint(quotient) : quotient);
      }
    });
    return out;
  }

  const bool saturate_ = GetSingleArgument<int64_t>("saturate") != 0;
  std::vector<uint8_t> codes_;
};

class DequantizeLinearOp final : public QuantizationOp {
 public:
  using QuantizationOp::QuantizationOp;
  using Types = ElementTypes<int8_t, uint8_t, int16_t, uint16_t, int32_t>;
  static std::vector<DType> DTypes() {
    std::vector<DType> all = QuantizedDTypes();
    all.push_back(DType::kInt32);
    return all;
  }
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    const DType from = Input(0).dtype(), to = y->dtype();
    if (Input(1).dtype() == DType::kFloat32 && to == DType::kFloat32 &&
        ByteTypes::Visit(from, [&]<class T>() {
          ForEachRun<T>(detail::BestQuantizeLoops<T>().dequantize, y->mutable_data<float>());
        }))
      return true;
    if (IsFloat8(from) || from == DType::kFloat4E2M1) {
      const auto store = ScaleTypes::Find<detail::StoreDequantizedFloats>(
          to, []<class T>() { return &detail::DequantizeFloatRun<T>; });
      ForEachBlock<float, Float8Types, Float8Types>(store, DenseInput(0), DenseInput(1),
                                                    y->raw_mutable_data());
      return true;
    }
    const auto store = ScaleTypes::Find<detail::StoreDequantized>(
        to, []<class T>() { return &detail::DequantizeRun<T>; });
    ForEachBlock<int32_t, Types, Types>(store, DenseInput(0), DenseInput(1), y->raw_mutable_data());
    return true;
  }
};

OPKIT_STANDARD_OPERATOR(QuantizeLinear, kNone, QuantizeLinearOp)
    .Doc(StrCat("y = saturate(round(x / y_scale) + y_zero_point), rounded to the nearest integer, "
                "of two to the even one, computed in float32, or for a scale of integers in "
                "float64. NaN becomes the lowest number. To a floating-point type: x / y_scale + "
                "y_zero_point, rounded to the nearest number.",
                detail::kNoGradientOfRounding))
    .NumInputs(2, 3)
    .Input(0, "x", "a tensor of any shape",
           {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt32})
    .Input(1, "y_scale",
           "one scale, a list of one for each index of `axis`, or with block_size as x, with one "
           "for each block along `axis`",
           QuantizeLinearOp::ScaleDTypes())
    .Input(2, "y_zero_point", "of the shape of y_scale; 0 where it is left out", QuantizedDTypes())
    .Output(0, "y", "of the shape of x; of the type of y_zero_point, or uint8 without one",
            QuantizedDTypes())
    .Arg<int64_t>("axis", "the axis that scales belong to", 1)
    .Arg<int64_t>("block_size", "elements of a block along `axis`; 0: no blocks", 0)
    .Arg<int64_t>("output_dtype",
                  "y's type without a zero point: its number in ONNX's TensorProto.DataType; 0: "
                  "uint8",
                  0)
    .Arg<int64_t>("saturate",
                  "1: beyond the largest number of an 8-bit floating-point type lies the largest "
                  "one; 0: infinity, or NaN in a type without it",
                  1)
    .PointwiseCost(3)
    .Infer(&detail::InferQuantizeLinear);

OPKIT_STANDARD_OPERATOR(DequantizeLinear, kNone, DequantizeLinearOp)
    .Doc(
        "y = (x - x_zero_point) * x_scale, computed in float32. It has no gradient: x is made of "
        "quantised numbers.")
    .NumInputs(2, 3)
    .Input(0, "x", "a tensor of any shape", DequantizeLinearOp::DTypes())
    .Input(1, "x_scale",
           "one scale, a list of one for each index of `axis`, or with block_size as x, with one "
           "for each block along `axis`",
           ScaleDTypes())
    .Input(2, "x_zero_point", "of the type of x, of the shape of x_scale; 0 where it is left out",
           DequantizeLinearOp::DTypes())
    .Output(0, "y", "of the shape of x, of the type of x_scale or of output_dtype",
            ScaleTypes::DTypes())
    .Arg<int64_t>("axis", "the axis that scales belong to", 1)
    .Arg<int64_t>("block_size", "elements of a block along `axis`; 0: no blocks", 0)
    .Arg<int64_t>("output_dtype",
                  "y's type: its number in ONNX's TensorProto.DataType; 0: that of x_scale", 0)
    .PointwiseCost(2)
    .Infer(&detail::InferDequantizeLinear);

}}  // namespace opkit

#endif  // OPKIT_OPS_QUANTIZED_QUANTIZE_LINEAR_HPP_
