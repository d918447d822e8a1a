// Conv: convolution (more exactly correlation, as usual in networks) of a batch of images with
// groups of kernels, over any number of spatial axes. Source:
// https://onnx.ai/onnx/operators/onnx__Conv.html
#ifndef OPKIT_OPS_NN_CONV_HPP_
#define OPKIT_OPS_NN_CONV_HPP_

#include "opkit/graph/passes/batch_normalization.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/node_gradient.hpp"
#include "opkit/ops/support/window.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the rank of X and W of a convolution; -1 if neither rank is known. W is input `w_input`.
// Throws kInvalidArgument if the ranks differ or are below 3.
inline int ConvRank(InferenceContext& c, int w_input = 1) {
  const std::string& op = c.def().type();
  const SymbolicShape &x = c.input_shape(0), &w = c.input_shape(w_input);
  if (x.has_rank() && w.has_rank() && x.rank() != w.rank())
    Throw(ErrorCode::kInvalidArgument, op, ": X is ", ToString(x), " and W is ", ToString(w),
          ", expected equal ranks");
  const int rank = x.has_rank() ? x.rank() : w.has_rank() ? w.rank() : -1;
  if (rank >= 0 && rank < 3)
    Throw(ErrorCode::kInvalidArgument, op, ": X is ", ToString(x), " and W is ", ToString(w),
          ", expected a batch, channels and at least one spatial axis");
  return rank;
}
// Returns the kernel's extent along a spatial axis. Throws kInvalidArgument if W and the attribute
// kernel_shape disagree.
inline Dim ConvKernelDim(const WindowAttributes& attributes, const SymbolicShape& w, int axis) {
  const Dim of_weights = w.has_rank() ? w[axis + 2] : Dim();
  if (attributes.kernel_shape.empty()) return of_weights;
  const int64_t given = attributes.kernel_shape[Index(axis)];
  if (!Dim::Compatible(of_weights, given))
    Throw(ErrorCode::kInvalidArgument, attributes.op, ": kernel_shape is ", attributes.kernel_shape,
          ", but W is ", ToString(w));
  return given;
}
// Returns the attribute `group`. Throws kInvalidArgument if it is below 1.
inline int64_t ConvGroups(const OperatorDef& def) {
  const auto groups = def.args().Get<int64_t>("group", 1);
  if (groups < 1)
    Throw(ErrorCode::kInvalidArgument, def.type(), ": group is ", groups, ", expected at least 1");
  return groups;
}
// Checks that B has one element for each output channel and that W and B have the dtype of X.
inline void CheckConvOperands(InferenceContext& c, const Dim& channels) {
  c.SetInput(1, c.input_dtype(0), {});
  if (c.HasInput(2)) c.SetInput(2, c.input_dtype(0), {channels});
}
// Returns the number of multiplications and additions of Conv or ConvTranspose, including those
// with pads. Every element of W is multiplied once for every pixel of `pixels`, a tensor [batch,
// channels, spatial axes].
inline uint64_t ConvFlops(const TensorInfo& w, const TensorInfo& pixels) {
  if (!pixels.shape.is_known()) return 0;
  const Shape shape = pixels.shape.ToShape();
  if (shape.numel() == 0) return 0;
  return 2 * OpSchema::Elements(w) * static_cast<uint64_t>(shape.numel() / shape[1]);
}

// Returns the shape of a convolution's output, which has no rank if neither X nor W has. W is input
// `w_input`. Throws kInvalidArgument if X, W and the attributes do not fit together.
inline SymbolicShape ConvOutputShape(InferenceContext& c, int w_input) {
  const WindowAttributes attributes(c.def());
  const int64_t groups = ConvGroups(c.def());
  const int rank = ConvRank(c, w_input);
  if (rank < 0) return {};
  attributes.CheckRank(rank - 2);
  const SymbolicShape x = c.input_shape(0), w = c.input_shape(w_input);
  SymbolicShape y = SymbolicShape::OfRank(rank);
  if (x.has_rank()) y[0] = x[0];
  if (w.has_rank()) {
    y[1] = w[0];
    if (w[0].is_known() && w[0].value() % groups != 0)
      Throw(ErrorCode::kInvalidArgument, attributes.op, ": W is ", ToString(w), ", whose ",
            ToString(w[0]), " output channels cannot be divided among ", groups, " groups");
    const bool known = x.has_rank() && x[1].is_known() && w[1].is_known();
    if (known && (x[1].value() % groups != 0 || x[1].value() / groups != w[1].value()))
      Throw(ErrorCode::kInvalidArgument, attributes.op, ": X is ", ToString(x), " and W is ",
            ToString(w), ", expected W's second extent times group (", groups,
            ") to be X's channels");
  }
  for (int axis = 0; axis < rank - 2; ++axis)
    y[axis + 2] = attributes.OutputDim(axis, x.has_rank() ? x[axis + 2] : Dim(),
                                       ConvKernelDim(attributes, w, axis));
  return y;
}

inline void InferConv(InferenceContext& c) {
  const SymbolicShape y = ConvOutputShape(c, 1);
  if (y.has_rank()) CheckConvOperands(c, y[1]);
  c.SetOutput(0, c.input_dtype(0), y);
}

// Declares the inputs and attributes that Conv and ConvTranspose have in common.
inline void FillConvSchema(OpSchema& schema, const char* w_doc) {
  schema.NumInputs(2, 3)
      .Input(0, "X", "images [N, C, D1, ..., Dn], n at least 1", FloatTypes::DTypes())
      .Input(1, "W", w_doc)
      .Input(2, "B", "optional: one bias for each output channel [M]")
      .Arg<int64_t>("group", "groups that channels and kernels are divided into", 1)
      .Arg<std::vector<int64_t>>("kernel_shape", "k1, ..., kn; those of W where it is left out");
}

}  // namespace detail

// The sizes of a Conv or ConvTranspose. `channels` and `outputs` are the input and output channels
// of one group. The pixels and `kernel` count the elements of one channel.
struct ConvSizes {
  int64_t batch = 0, channels = 0, outputs = 0, input_pixels = 1, output_pixels = 1, kernel = 1;
  WindowAxes axes;

  // Returns the sizes of a Conv. The shapes must have passed inference.
  template <class Attributes>
  static ConvSizes Of(const Attributes& attributes, int64_t groups, const Shape& x,
                      const Shape& w) {
    ConvSizes sizes;
    sizes.batch = x[0];
    sizes.channels = w[1];
    sizes.outputs = w[0] / groups;
    for (int axis = 0; axis < x.rank() - 2; ++axis) {
      sizes.axes.push_back(attributes.At(axis, x[axis + 2], w[axis + 2]));
      sizes.input_pixels *= sizes.axes.back().input;
      sizes.output_pixels *= sizes.axes.back().output;
      sizes.kernel *= sizes.axes.back().kernel;
    }
    return sizes;
  }
};

// The elements of a convolution's tensors. `bias` is null if the node has no bias.
template <class T>
struct ConvData {
  const T *x, *w, *bias;
  T* y;
};

namespace detail {

// Computes a convolution window by window, with sums in double.
template <class T>
void Convolve(const ConvSizes& sizes, int64_t groups, const ConvData<T>& data) {
  const int64_t all_outputs = groups * sizes.outputs;
  ParallelForRange(sizes.output_pixels, kAutoGrain, [&](int64_t begin, int64_t end) {
    WindowTaps taps(sizes.axes);
    for (int64_t pixel = begin; pixel < end; ++pixel) {
      const std::vector<WindowTap>& covered = taps.At(pixel);
      for (int64_t plane = 0; plane < sizes.batch * all_outputs; ++plane) {
        const int64_t n = plane / all_outputs, m = plane % all_outputs;
        const T* image =
            data.x + (n * groups + m / sizes.outputs) * sizes.channels * sizes.input_pixels;
        const T* kernel = data.w + m * sizes.channels * sizes.kernel;
        double sum = data.bias ? static_cast<double>(data.bias[m]) : 0;
        for (int64_t channel = 0; channel < sizes.channels; ++channel) {
          for (const WindowTap& tap : covered)
            sum += static_cast<double>(image[tap.input]) * static_cast<double>(kernel[tap.kernel]);
          image += sizes.input_pixels;
          kernel += sizes.kernel;
        }
        data.y[plane * sizes.output_pixels + pixel] = static_cast<T>(sum);
      }
    }
  });
}
// Computes the gradient of a convolution's X, from W and the gradient of Y.
template <class T>
void ConvolveToInput(const ConvSizes& sizes, int64_t groups, const T* w, const T* dy, T* dx) {
  const int64_t all_channels = groups * sizes.channels, all_outputs = groups * sizes.outputs;
  ParallelForRange(sizes.batch * all_channels, kAutoGrain, [&](int64_t begin, int64_t end) {
    WindowTaps taps(sizes.axes);
    std::vector<double> sums(static_cast<size_t>(sizes.input_pixels));
    for (int64_t plane = begin; plane < end; ++plane) {
      const int64_t n = plane / all_channels, channel = plane % all_channels;
      const int64_t first = channel / sizes.channels * sizes.outputs;
      sums.assign(sums.size(), 0);
      for (int64_t pixel = 0; pixel < sizes.output_pixels; ++pixel) {
        const std::vector<WindowTap>& covered = taps.At(pixel);
        for (int64_t m = first; m < first + sizes.outputs; ++m) {
          const auto slope =
              static_cast<double>(dy[(n * all_outputs + m) * sizes.output_pixels + pixel]);
          const T* kernel = w + (m * sizes.channels + channel % sizes.channels) * sizes.kernel;
          for (const WindowTap& tap : covered)
            sums[Index(tap.input)] += slope * static_cast<double>(kernel[tap.kernel]);
        }
      }
      for (int64_t i = 0; i < sizes.input_pixels; ++i)
        dx[plane * sizes.input_pixels + i] = static_cast<T>(sums[Index(i)]);
    }
  });
}
// Computes the gradient of a convolution's W, from X and the gradient of Y.
template <class T>
void ConvolveToKernels(const ConvSizes& sizes, int64_t groups, const T* x, const T* dy, T* dw) {
  const int64_t all_channels = groups * sizes.channels, all_outputs = groups * sizes.outputs;
  ParallelForRange(all_outputs * sizes.channels, kAutoGrain, [&](int64_t begin, int64_t end) {
    WindowTaps taps(sizes.axes);
    std::vector<double> sums(static_cast<size_t>(sizes.kernel));
    for (int64_t plane = begin; plane < end; ++plane) {
      const int64_t m = plane / sizes.channels;
      const int64_t channel = m / sizes.outputs * sizes.channels + plane % sizes.channels;
      sums.assign(sums.size(), 0);
      for (int64_t pixel = 0; pixel < sizes.output_pixels; ++pixel) {
        const std::vector<WindowTap>& covered = taps.At(pixel);
        for (int64_t n = 0; n < sizes.batch; ++n) {
          const auto slope =
              static_cast<double>(dy[(n * all_outputs + m) * sizes.output_pixels + pixel]);
          const T* image = x + (n * all_channels + channel) * sizes.input_pixels;
          for (const WindowTap& tap : covered)
            sums[Index(tap.kernel)] += slope * static_cast<double>(image[tap.input]);
        }
      }
      for (int64_t i = 0; i < sizes.kernel; ++i)
        dw[plane * sizes.kernel + i] = static_cast<T>(sums[Index(i)]);
    }
  });
}

// The gradient of Conv and of ConvTranspose.
class ConvolutionGradient final : public NodeGradient {
 public:
  using NodeGradient::NodeGradient;
  bool CopyArguments() const override { return true; }

 private:
  void Make() override {
    const std::string op = Def().type() + "Gradient";
    Give(0, op, {I(0), I(1), GO(0)}, {{"of", "X"}});
    Give(1, op, {I(0), I(1), GO(0)}, {{"of", "W"}});
    if (HasI(2)) Give(2, "ReduceSum", {GO(0), AxesBesideChannels(GO(0))}, {{"keepdims", 0}});
  }
};
OPKIT_REGISTER_GRADIENT(Conv, ConvolutionGradient);
// The gradient of X or of W is linear in the gradient of Y and in the other of the two.
class ConvolutionSecondGradient final : public NodeGradient {
 public:
  using NodeGradient::NodeGradient;
  bool CopyArguments() const override { return true; }

 private:
  void Make() override {
    const std::string& op = Def().type();
    const std::string forward = op.substr(0, op.size() - std::string_view("Gradient").size());
    if (Def().args().Get<std::string>("of", "X") == "X") {
      Give(1, op, {GO(0), I(1), I(2)}, {{"of", "W"}});
      Give(2, forward, {GO(0), I(1)});
    } else {
      Give(0, op, {I(0), GO(0), I(2)}, {{"of", "X"}});
      Give(2, forward, {I(0), GO(0)});
    }
  }
};
OPKIT_REGISTER_GRADIENT(ConvGradient, ConvolutionSecondGradient);

// Fills the schema of the gradient of a convolution. `output_shape` infers the shape of Y.
inline auto ConvGradientSchema(SymbolicShape (*output_shape)(InferenceContext&)) {
  return [=](OpSchema& schema) {
    FillConvSchema(schema, "of the convolution");
    FillWindowSchema(schema, kAutoPadDoc, kPadsDoc);
    schema.Private()
        .NumInputs(3)
        .Input(0, "X", "of the convolution", FloatTypes::DTypes())
        .Input(2, "dY", "of the type of X, of the shape of the convolution's output")
        .Output(0, "gradient", "as the input that `of` names")
        .Arg("of", "the input whose gradient it computes", {"X", "W"})
        .Infer([=](InferenceContext& c) {
          const SymbolicShape y = output_shape(c);
          c.SetInput(1, c.input_dtype(0), {});
          c.SetInput(2, c.input_dtype(0), y);
          c.SetOutput(0, c.input_dtype(0), c.input_shape(c.Arg<std::string>("of") == "X" ? 0 : 1));
        });
  };
}

}  // namespace detail

// The base of the kernels of Conv and of ConvTranspose, each with its own type of attributes.
template <class Attributes>
class BasicConvOpBase : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

 protected:
  template <class T>
  ConvData<T> DataOf(Tensor& y) {
    const Tensor &x = DenseInput(0), &w = DenseInput(1);
    const Tensor* bias = HasInput(2) ? &DenseInput(2) : nullptr;
    return {x.data<T>(), w.data<T>(), bias ? bias->data<T>() : nullptr, y.mutable_data<T>()};
  }

  const Attributes attributes_{def()};
  const int64_t groups_ = detail::ConvGroups(def());
};
using ConvOpBase = BasicConvOpBase<WindowAttributes>;

class ConvOp final : public ConvOpBase {
 public:
  using ConvOpBase::ConvOpBase;

  bool RunOnDevice() override {
    return Visit<FloatTypes>([&]<class T>() {
      Tensor* y = InferredOutput(0);
      if (y->numel() == 0) return;
      const ConvSizes sizes =
          ConvSizes::Of(attributes_, groups_, Input(0).shape(), Input(1).shape());
      detail::Convolve(sizes, groups_, this->DataOf<T>(*y));
    });
  }
};

// Computes the gradient of X or of W. For ConvTranspose, X is the output of the Conv whose windows
// the attributes describe, and the gradient of Y its input.
template <class Attributes, bool kTransposed>
class BasicConvGradientOp final : public BasicConvOpBase<Attributes> {
  using Base = BasicConvOpBase<Attributes>;

 public:
  using Base::Base;

  bool RunOnDevice() override {
    return this->template Visit<FloatTypes>([&]<class T>() {
      const Tensor &x = this->DenseInput(0), &w = this->DenseInput(1), &dy = this->DenseInput(2);
      Tensor* gradient = this->InferredOutput(0);
      if (gradient->numel() == 0) return;
      const int64_t groups = this->groups_;
      const auto sizes = ConvSizes::Of(this->attributes_, groups, x.shape(), w.shape());
      const T *xs = x.template data<T>(), *ws = w.template data<T>(), *dys = dy.template data<T>();
      T* out = gradient->template mutable_data<T>();
      if (!of_input_)
        detail::ConvolveToKernels(sizes, groups, kTransposed ? dys : xs, kTransposed ? xs : dys,
                                  out);
      else if constexpr (kTransposed)
        detail::Convolve<T>(sizes, groups, {dys, ws, nullptr, out});
      else
        detail::ConvolveToInput(sizes, groups, ws, dys, out);
    });
  }

 private:
  const bool of_input_ = this->template GetSingleArgument<std::string>("of") == "X";
};
using ConvGradientOp = BasicConvGradientOp<WindowAttributes, false>;

OPKIT_STANDARD_OPERATOR(Conv, kMaker, ConvOp)
    .Doc(
        "Convolution: each output pixel is the sum of an input window's products with a kernel, "
        "over the channels of a group, plus a bias.")
    .FillUsing([](OpSchema& schema) {
      detail::FillConvSchema(schema, "kernels [M, C / group, k1, ..., kn]");
      FillWindowSchema(schema, kAutoPadDoc, kPadsDoc);
    })
    .Output(0, "Y", "[N, M, ...], spatial extents as strides, dilations and pads make them")
    .Infer(&detail::InferConv)
    .Cost([](auto&, auto& inputs, auto& outputs) {
      return WindowCost(detail::ConvFlops(inputs[1], outputs[0]), inputs, outputs, 1);
    });

OPKIT_STANDARD_OPERATOR(ConvGradient, kMaker, ConvGradientOp)
    .Doc("The gradient of the input or of the kernels of a Conv, from that of its output.")
    .FillUsing(detail::ConvGradientSchema([](InferenceContext& c) {
      return detail::ConvOutputShape(c, 1);
    }))
    .Cost([](auto&, auto& inputs, auto& outputs) {
      return WindowCost(detail::ConvFlops(inputs[1], inputs[2]), inputs, outputs, 1);
    });

}}  // namespace opkit

#endif  // OPKIT_OPS_NN_CONV_HPP_
