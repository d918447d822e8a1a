// Resize: enlarges or shrinks images, or any tensors, by nearest-neighbour, linear or cubic
// interpolation. Linear and cubic interpolation take one pass over the data for each axis that
// changes.
#ifndef OPKIT_OPS_NN_RESIZE_HPP_
#define OPKIT_OPS_NN_RESIZE_HPP_

#include "opkit/ops/support/axes.hpp"
#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/integer_inputs.hpp"
#include "opkit/ops/support/node_gradient.hpp"
#include "opkit/ops/support/resize_axis.hpp"
#include "opkit/ops/support/table_copy.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the elements of a list of floating-point numbers as float.
inline std::vector<float> FloatList(const Tensor& tensor, const char* what) {
  if (tensor.rank() > 1)
    Throw(ErrorCode::kInvalidArgument, "Resize: '", what, "' must be a list, found ", tensor);
  return NumbersOf<float>(tensor);
}

// Returns the axes to which scales, sizes and roi apply.
inline std::vector<int> ResizedAxes(const ResizeRules& rules, int rank) {
  std::vector<int> axes;
  for (int i = 0; i < rank && rules.all_axes; ++i) axes.push_back(i);
  for (const int64_t axis : NormalizeAxes(rules.axes, rank, "Resize"))
    axes.push_back(static_cast<int>(axis));
  return axes;
}
inline void CheckResizeList(const char* name, size_t found, size_t expected) {
  if (found != expected)
    Throw(ErrorCode::kInvalidArgument, "Resize: '", name, "' has ", found, " elements, expected ",
          expected);
}

// Returns the mapping of each axis; nullopt if the mapping depends on an unknown extent of the
// input. Exactly one of `scales` and `sizes` must be given.
inline std::vector<std::optional<ResizeAxis>> ResizeAxesOf(const ResizeRules& rules,
                                                           const SymbolicShape& input,
                                                           const std::vector<float>* scales,
                                                           const Dims* sizes) {
  std::vector<std::optional<ResizeAxis>> out;
  for (const Dim& dim : input.dims())
    out.push_back(dim.is_known() ? std::optional(ResizeAxis::OfSize(dim.value(), dim.value()))
                                 : std::nullopt);
  const std::vector<int> axes = ResizedAxes(rules, input.rank());
  if (scales) CheckResizeList("scales", scales->size(), axes.size());
  if (sizes) CheckResizeList("sizes", static_cast<size_t>(sizes->size()), axes.size());
  float common = 0;
  const bool keep_ratio = sizes && rules.policy != AspectRatioPolicy::kStretch;
  bool all_known = true;
  for (size_t i = 0; i < axes.size() && keep_ratio; ++i) {
    const Dim& dim = input[axes[i]];
    all_known &= dim.is_known();
    if (!all_known) break;
    const float scale = ResizeAxis::OfSize(dim.value(), (*sizes)[static_cast<int>(i)]).scale;
    if (i == 0 || (rules.policy == AspectRatioPolicy::kNotLarger ? scale < common : scale > common))
      common = scale;
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    const Dim& dim = input[axes[i]];
    std::optional<ResizeAxis>& axis = out[Index(axes[i])];
    axis.reset();
    if (!dim.is_known() || !all_known) continue;
    axis = keep_ratio ? ResizeAxis::OfCommonScale(dim.value(), common)
           : scales   ? ResizeAxis::OfScale(dim.value(), (*scales)[i])
                      : ResizeAxis::OfSize(dim.value(), (*sizes)[static_cast<int>(i)]);
  }
  return out;
}

// True if the node has input i. An empty tensor counts as a missing input, because exporters write
// empty tensors for missing inputs.
inline bool ResizeInputGiven(const InferenceContext& c, int i) {
  return c.HasInput(i) && !(c.input_shape(i).is_known() && c.input_shape(i).ToShape().numel() == 0);
}

// Returns the shape of the output as far as it is known.
inline SymbolicShape ResizeOutputShape(InferenceContext& c) {
  const ResizeRules rules(c.args());
  const SymbolicShape& input = c.input_shape(0);
  const bool has_scales = ResizeInputGiven(c, 2), has_sizes = ResizeInputGiven(c, 3);
  const bool open =
      (has_scales && !c.input_shape(2).is_known()) || (has_sizes && !c.input_shape(3).is_known());
  if (has_scales == has_sizes && !open)
    Throw(ErrorCode::kInvalidArgument, "Resize needs either 'scales' or 'sizes', found ",
          has_scales ? "both" : "none");
  if (!input.has_rank()) return {};
  SymbolicShape shape = input;
  for (const int axis : ResizedAxes(rules, input.rank())) shape[axis] = Dim();
  const auto sizes = has_sizes ? KnownIntegerList(c, 3, "sizes") : std::nullopt;
  const Tensor* scales_data = has_scales ? c.input_constant(2) : nullptr;
  std::vector<float> scales;
  if (scales_data) scales = FloatList(*scales_data, "scales");
  if (sizes || scales_data) {
    const auto axes =
        ResizeAxesOf(rules, input, scales_data ? &scales : nullptr, sizes ? &*sizes : nullptr);
    for (int i = 0; i < input.rank(); ++i)
      if (axes[Index(i)]) shape[i] = axes[Index(i)]->output;
    const std::vector<int> named = ResizedAxes(rules, input.rank());
    for (size_t i = 0; i < named.size(); ++i) {
      if (input[named[i]].is_known()) continue;
      if (scales_data && scales[i] == 1) shape[named[i]] = input[named[i]];
      if (sizes && rules.policy == AspectRatioPolicy::kStretch)
        shape[named[i]] = (*sizes)[static_cast<int>(i)];
    }
  }
  return shape;
}
inline void InferResize(InferenceContext& c) {
  c.SetOutput(0, c.input_dtype(0), ResizeOutputShape(c));
}

// The extents of a pass over one axis: from [outer, input, inner] to [outer, output, inner].
struct ResizeExtents {
  int64_t outer = 1, input = 1, output = 1, inner = 1;
};

// Replaces the elements along one axis by weighted sums of them.
template <class T>
void ResizePass(const ResizeExtents& extents, const ResizeWeights& weights, const T* from, T* to) {
  const int64_t input = extents.input, output = extents.output, inner = extents.inner;
  const int64_t taps = weights.taps;
  const int64_t* index = weights.index.data();
  const std::vector<T> narrow(weights.weight.begin(), weights.weight.end());
  const T* weight = narrow.data();
  constexpr int64_t kChunk = 1 << 15;  // multiplications
  if (inner == 1) {
    ParallelForRange(extents.outer, kChunk / (output * taps) + 1, [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* line = from + row * input;
        T* out = to + row * output;
        if (taps == 2) {
          for (int64_t o = 0; o < output; ++o)
            out[o] =
                weight[2 * o] * line[index[2 * o]] + weight[2 * o + 1] * line[index[2 * o + 1]];
          continue;
        }
        for (int64_t o = 0; o < output; ++o) {
          T sum = 0;
          for (int64_t k = o * taps; k < (o + 1) * taps; ++k) sum += weight[k] * line[index[k]];
          out[o] = sum;
        }
      }
    });
    return;
  }
  ParallelForRange(extents.outer * output, kChunk / (inner * taps) + 1,
                   [=](int64_t begin, int64_t end) {
                     for (int64_t row = begin; row < end; ++row) {
                       const int64_t o = row % output;
                       const T* block = from + row / output * input * inner;
                       T* out = to + row * inner;
                       bool first = true;
                       for (int64_t k = o * taps; k < (o + 1) * taps; ++k) {
                         const T w = weight[k];
                         const T* line = block + index[k] * inner;
                         if (first)
                           for (int64_t i = 0; i < inner; ++i) out[i] = w * line[i];
                         else if (w != 0)
                           for (int64_t i = 0; i < inner; ++i) out[i] += w * line[i];
                         first = false;
                       }
                     }
                   });
}

// Converts a result to T. For an integral T: rounds to the nearest integer and clamps to the range
// of T; NaN becomes 0.
template <class T, class Wide>
OPKIT_HOST_DEVICE T FromWide(Wide value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else if constexpr (std::is_integral_v<T>) {
    const Wide rounded = std::round(value);
    if (!(rounded > static_cast<Wide>((std::numeric_limits<T>::min)())))
      return value == value ? (std::numeric_limits<T>::min)() : T(0);
    if (rounded >= static_cast<Wide>((std::numeric_limits<T>::max)()))
      return (std::numeric_limits<T>::max)();
    return static_cast<T>(rounded);
  } else {
    return static_cast<T>(value);
  }
}

}  // namespace detail

// The base of Resize and of its gradient. The lists of numbers are in the host's memory.
template <class Context>
class ResizeOpBase : public StandardOperatorOn<Context> {
 public:
  using StandardOperatorOn<Context>::StandardOperatorOn;

 protected:
  // Returns the axes of this run, whose inputs must have passed inference.
  std::vector<ResizeAxis> FindAxes() {
    const Tensor& x = this->Input(0);
    std::vector<float> scales;
    Dims sizes;
    const bool by_scales = this->HasInput(2) && this->Input(2, DeviceType::kCPU).numel() > 0;
    if (by_scales)
      scales = detail::FloatList(this->Input(2, DeviceType::kCPU), "scales");
    else
      sizes = IntegerList(this->Input(3, DeviceType::kCPU), "sizes");
    const auto found = detail::ResizeAxesOf(rules_, x.shape(), by_scales ? &scales : nullptr,
                                            by_scales ? nullptr : &sizes);
    std::vector<ResizeAxis> axes;
    for (const auto& axis : found) axes.push_back(*axis);
    if (rules_.coordinates == ResizeCoordinates::kTfCropAndResize) ReadRegion(axes);
    return axes;
  }

  const ResizeRules rules_{this->def().args()};

 private:
  void ReadRegion(std::vector<ResizeAxis>& all) {
    const std::vector<int> axes = detail::ResizedAxes(rules_, static_cast<int>(all.size()));
    std::vector<float> region;
    if (this->HasInput(1)) region = detail::FloatList(this->Input(1, DeviceType::kCPU), "roi");
    detail::CheckResizeList("roi", region.size(), 2 * axes.size());
    for (size_t i = 0; i < axes.size(); ++i) {
      all[detail::Index(axes[i])].roi_begin = region[i];
      all[detail::Index(axes[i])].roi_end = region[axes.size() + i];
    }
  }
};

class ResizeOp final : public ResizeOpBase<CPUContext> {
 public:
  using ResizeOpBase::ResizeOpBase;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    axes_ = FindAxes();
    if (y->numel() == 0) return true;
    if (rules_.mode == ResizeMode::kNearest) return RunNearest(x, *y);
    using WideTypes = ElementTypes<double, int32_t, int64_t, uint32_t, uint64_t>;
    return WideTypes::Has(x.dtype()) ? RunPasses<double>(x, *y) : RunPasses<float>(x, *y);
  }

 private:
  bool RunNearest(const Tensor& x, Tensor& y) {
    const int64_t item = ItemSize(x.dtype());
    if (weighed_ != axes_ || item_ != item) PrepareNearest(item);
    const Tensor fill = Extrapolated(x.dtype());
    copy_.Run(x.raw_data(), y.raw_mutable_data(), fill.raw_data());
    return true;
  }
  void PrepareNearest(int64_t item) {
    weighed_.clear();
    copy_.Start(item);
    for (const ResizeAxis& axis : axes_) {
      table_.clear();
      bool same = axis.input == axis.output;
      for (int64_t o = 0; o < axis.output; ++o) {
        table_.push_back(axis.NearestOrOutside(rules_, o));
        same &= table_.back() == o;
      }
      if (same)
        copy_.Keep(axis.input);
      else
        copy_.Axis(axis.input) = table_;
    }
    item_ = item;
    weighed_ = axes_;
  }
  // Returns the extrapolation value as a tensor of one element.
  Tensor Extrapolated(DType dtype) const {
    Tensor fill(Shape{}, dtype);
    PlainTypes::Visit(dtype, [&]<class T>() {
      *fill.mutable_data<T>() = detail::FromWide<T>(static_cast<double>(rules_.extrapolation));
    });
    return fill;
  }

  template <class Wide>
  bool RunPasses(const Tensor& x, Tensor& y) {
    Weigh();
    if (order_.empty()) {
      CopyBytes(y.raw_mutable_data(), x.raw_data(), x.nbytes());
      return true;
    }
    const bool direct = x.dtype() == kDTypeOf<Wide>;
    std::vector<int64_t> extents = x.shape().vec();
    Tensor from = x;
    int next = 0;  // the buffer to use next, 0 or 1
    const auto buffer = [&] {
      Tensor& tensor = buffers_[next];
      next = 1 - next;
      tensor.Resize(Shape(extents), kDTypeOf<Wide>);
      return tensor;
    };
    if (!direct) {
      from = buffer();
      Convert<Wide>(x, from);
    }
    for (const size_t axis : order_) {
      detail::ResizeExtents pass{.input = axes_[axis].input, .output = axes_[axis].output};
      for (size_t i = 0; i < extents.size(); ++i)
        if (i != axis) (i < axis ? pass.outer : pass.inner) *= extents[i];
      extents[axis] = pass.output;
      Tensor to = direct && axis == order_.back() ? y : buffer();
      detail::ResizePass(pass, weights_[axis], from.data<Wide>(), to.mutable_data<Wide>());
      from = std::move(to);
    }
    for (const size_t axis : order_) FillOutside(from, axis, weights_[axis]);
    if (!direct) ConvertBack<Wide>(from, y);
    return true;
  }
  // Computes the weights of all axes and the order of the passes. Axes that shrink most come first,
  // so that later passes have less work. Among equal axes the innermost, whose elements are
  // gathered one by one, is resized when the tensor is smallest.
  void Weigh() {
    if (weighed_ == axes_) return;
    weighed_.clear();
    weights_.clear();
    order_.clear();
    for (size_t i = 0; i < axes_.size(); ++i) {
      weights_.emplace_back(rules_, axes_[i]);
      if (!weights_[i].IsIdentity(axes_[i])) order_.push_back(i);
    }
    const auto growth = [&](size_t axis) {
      return static_cast<double>(axes_[axis].output) / static_cast<double>(axes_[axis].input);
    };
    std::sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
      return growth(a) != growth(b) ? growth(a) < growth(b) : growth(a) < 1 ? a < b : a > b;
    });
    weighed_ = axes_;
  }
  template <class Wide>
  static void Convert(const Tensor& x, Tensor& wide) {
    PlainTypes::Visit(x.dtype(), [&]<class T>() {
      const T* in = x.data<T>();
      Wide* out = wide.mutable_data<Wide>();
      for (int64_t i = 0; i < x.numel(); ++i) out[i] = static_cast<Wide>(in[i]);
    });
  }
  template <class Wide>
  static void ConvertBack(const Tensor& wide, Tensor& y) {
    PlainTypes::Visit(y.dtype(), [&]<class T>() {
      const Wide* in = wide.data<Wide>();
      T* out = y.mutable_data<T>();
      for (int64_t i = 0; i < y.numel(); ++i) out[i] = detail::FromWide<T>(in[i]);
    });
  }
  // Writes the extrapolation value to the output elements that lie outside the input along `axis`.
  void FillOutside(Tensor& tensor, size_t axis, const ResizeWeights& weights) {
    const int64_t extent = axes_[axis].output;
    const int64_t inner =
        tensor.shape().NumelBetween(static_cast<int>(axis) + 1, tensor.shape().rank());
    const int64_t outer = tensor.numel() / (extent * inner);
    const Tensor fill = Extrapolated(tensor.dtype());
    const int64_t item = ItemSize(tensor.dtype());
    for (int64_t o = 0; o < extent; ++o) {
      if (!weights.outside[detail::Index(o)]) continue;
      fill_.Start(item);
      fill_.Axis(outer, 0, extent * inner);
      fill_.Axis(inner, 0, 1);
      fill_.Run(fill.raw_data(), static_cast<char*>(tensor.raw_mutable_data()) + o * inner * item);
    }
  }

  // `axes_`: the axes of this run. `weighed_`: the axes for which the members below were computed.
  std::vector<ResizeAxis> axes_, weighed_;
  std::vector<ResizeWeights> weights_;
  std::vector<size_t> order_;
  Tensor buffers_[2];
  std::vector<int64_t> table_;
  TableCopy copy_;
  int64_t item_ = 0;  // bytes of the elements that copy_ moves
  StridedCopy fill_;
};

// Gives each element of X the weighted sum of the gradients of the elements of Y that are made of
// it: one pass for each axis. Computes in double.
class ResizeGradientOp final : public ResizeOpBase<CPUContext> {
 public:
  using ResizeOpBase::ResizeOpBase;
  bool RunOnDevice() override {
    const Tensor& dy = DenseInput(4);
    Tensor* dx = InferredOutput(0);
    const std::vector<ResizeAxis> axes = FindAxes();
    std::vector<double> slopes = detail::NumbersOf<double>(dy);
    std::vector<int64_t> extents = dy.shape().vec();
    for (size_t i = 0; i < axes.size() && dx->numel() > 0; ++i) {
      detail::ResizeExtents pass{.input = axes[i].input, .output = axes[i].output};
      for (size_t k = 0; k < extents.size(); ++k)
        if (k != i) (k < i ? pass.outer : pass.inner) *= extents[k];
      extents[i] = pass.input;
      slopes = TurnBack(pass, axes[i], slopes);
    }
    return Visit<FloatTypes>([&]<class T>() {
      T* to = dx->mutable_data<T>();
      for (int64_t i = 0; i < dx->numel(); ++i) to[i] = ConvertElement<T>(slopes[detail::Index(i)]);
    });
  }

 private:
  // The taps of the output elements along one axis. An output element outside X has none.
  struct Taps {
    int64_t count = 1;
    std::vector<int64_t> index;
    std::vector<double> weight;
  };
  Taps TapsOf(const ResizeAxis& axis) const {
    Taps taps;
    if (rules_.mode != ResizeMode::kNearest) {
      ResizeWeights weights(rules_, axis);
      for (size_t i = 0; i < weights.weight.size(); ++i)
        if (weights.outside[i / static_cast<size_t>(weights.taps)]) weights.weight[i] = 0;
      return {weights.taps, std::move(weights.index), std::move(weights.weight)};
    }
    for (int64_t o = 0; o < axis.output; ++o) {
      const int64_t nearest = axis.NearestOrOutside(rules_, o);
      taps.index.push_back(nearest < 0 ? 0 : nearest);
      taps.weight.push_back(nearest < 0 ? 0 : 1);
    }
    return taps;
  }
  // Returns [outer, input, inner] of the gradients [outer, output, inner].
  std::vector<double> TurnBack(const detail::ResizeExtents& pass, const ResizeAxis& axis,
                               const std::vector<double>& from) const {
    const Taps taps = TapsOf(axis);
    std::vector<double> to(static_cast<size_t>(pass.outer * pass.input * pass.inner));
    ParallelFor(pass.outer, [&](int64_t outer) {
      for (int64_t tap = 0; tap < pass.output * taps.count; ++tap) {
        const double weight = taps.weight[detail::Index(tap)];
        if (weight == 0) continue;
        const double* slope = from.data() + (outer * pass.output + tap / taps.count) * pass.inner;
        double* sum =
            to.data() + (outer * pass.input + taps.index[detail::Index(tap)]) * pass.inner;
        for (int64_t i = 0; i < pass.inner; ++i) sum[i] += weight * slope[i];
      }
    });
    return to;
  }
};

namespace detail {

OPKIT_NODE_GRADIENT(Resize) {
  std::vector<std::string> inputs = Def().inputs();
  inputs.resize(4);
  inputs.push_back(GO(0));
  Give(0, "ResizeGradient", inputs, Def().args());
}

// Declares the inputs and attributes of Resize, which its gradient has too.
inline void FillResizeSchema(OpSchema& schema) {
  schema
      .Input(1, "roi",
             "the part of X to be resized, in fractions of its extents: where it begins on "
             "each axis, then where it ends; for tf_crop_and_resize",
             {DType::kFloat32, DType::kFloat64, DType::kFloat16})
      .Input(2, "scales", "extents of the output over those of X; they are rounded down",
             {DType::kFloat32})
      .Input(3, "sizes", "extents of the output, instead of `scales`", {DType::kInt64})
      .Arg("mode", "how an element of Y is made of those near it", {"nearest", "linear", "cubic"})
      .Arg("coordinate_transformation_mode",
           "where an element of Y lies in X; ONNX dropped tf_half_pixel_for_nn in opset 13",
           {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
            "asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize"})
      .Arg(
          "nearest_mode",
          "which neighbour `nearest` takes; simple is not ONNX's but what ONNX Runtime does before "
          "opset 11: ceil on axes that shrink, floor on others",
          {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple"})
      .Arg("keep_aspect_ratio_policy",
           "how `sizes` are met; not_larger and not_smaller do it by one scale for all axes",
           {"stretch", "not_larger", "not_smaller"})
      .Arg<int64_t>("antialias", "1: linear and cubic average over all that they drop", 0)
      .Arg<int64_t>("exclude_outside",
                    "1: elements outside X have no weight; 0: those at the side of X stand for "
                    "them",
                    0)
      .Arg<float>("cubic_coeff_a", "of the cubic", -0.75f)
      .Arg<float>("extrapolation_value", "of elements that tf_crop_and_resize finds outside X", 0.f)
      .Arg<std::vector<int64_t>>("axes",
                                 "those that roi, scales and sizes are for; by default all");
}

}  // namespace detail

OPKIT_STANDARD_OPERATOR(Resize, kMaker, ResizeOp)
    .NumInputs(1, 4)
    .InputsOnHost({1, 2, 3})
    .Input(0, "X", "any tensor")
    .FillUsing(detail::FillResizeSchema)
    .Output(0, "Y", "X resized; integers are rounded to the nearest")
    .Infer(detail::InferResize)
    .Cost([](const OperatorDef& def, auto& inputs, auto& outputs) {
      const auto mode = def.args().Get<std::string>("mode", "nearest");
      const uint64_t flops = mode == "nearest" ? 0 : mode == "linear" ? 6 : 14;
      return TrafficCost(flops * OpSchema::Elements(outputs[0]), {inputs[0]}, outputs);
    })
    .Doc("Resizes a tensor by interpolation.");

OPKIT_STANDARD_OPERATOR(ResizeGradient, kNotImplemented, ResizeGradientOp)
    .Private()
    .NumInputs(5)
    .InputsOnHost({1, 2, 3})
    .Input(0, "X", "of Resize", FloatTypes::DTypes())
    .FillUsing(detail::FillResizeSchema)
    .Input(4, "dY", "of the type of X, of the shape of the resized tensor", FloatTypes::DTypes())
    .Output(0, "dX", "as X")
    .Infer([](InferenceContext& c) {
      c.SetInput(4, c.input_dtype(0), detail::ResizeOutputShape(c));
      c.SetOutput(0, c.input_dtype(0), c.input_shape(0));
    })
    .Cost([](auto&, auto& inputs, auto& outputs) {
      return TrafficCost(14 * OpSchema::Elements(inputs[4]), inputs, outputs);
    })
    .Doc("The gradient of Resize, from that of the resized tensor.");

}}  // namespace opkit

#endif  // OPKIT_OPS_NN_RESIZE_HPP_
