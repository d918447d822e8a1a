// CUDAConvOperator: the base of the kernels of Conv, ConvTranspose and their gradients on CUDA.
// Each of these nodes computes one tensor of a convolution from the two others.
#ifndef OPKIT_BACKENDS_CUDA_OPS_CONV_OPERATOR_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_CONV_OPERATOR_HPP_

#include "opkit/backends/cuda/ops/cuda_operator.hpp"
#include "opkit/ops/nn/conv_transpose.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The sizes of a convolution (ConvSizes), in a form that a kernel's launch copies to the device.
// Missing spatial axes are outer axes of one element.
struct ConvExtents {
  static constexpr int kAxes = 3;

  int64_t groups, batch, channels, outputs, input_pixels, output_pixels, kernel;
  WindowAxis axes[kAxes];

  // Throws kUnsupported for more than kAxes axes.
  ConvExtents(const ConvSizes& sizes, int64_t of_groups)
      : groups(of_groups),
        batch(sizes.batch),
        channels(sizes.channels),
        outputs(sizes.outputs),
        input_pixels(sizes.input_pixels),
        output_pixels(sizes.output_pixels),
        kernel(sizes.kernel) {
    const int given = static_cast<int>(sizes.axes.size());
    RequireAxes(given);
    for (int i = 0; i < kAxes - given; ++i) axes[i].input = axes[i].output = 1;
    for (int i = 0; i < given; ++i) axes[kAxes - given + i] = sizes.axes[Index(i)];
  }
  static void RequireAxes(int given) {
    if (given > kAxes)
      throw UnsupportedOperatorFeature(
          StrCat("it has at most ", kAxes, " spatial axes, and the input has ", given));
  }
};

// Splits the number of an element into its indices along three axes.
struct SpatialIndex {
  int64_t at[ConvExtents::kAxes];
  OPKIT_HOST_DEVICE SpatialIndex(int64_t i, int64_t middle, int64_t last)
      : at{i / (middle * last), i / last % middle, i % last} {}
};

}  // namespace detail

// The tensors of a convolution: a pixel of `kPixels` is the sum of a window of `kImage` times
// `kKernels`. Conv computes the pixels, and ConvTranspose the image.
enum class ConvTensor : uint8_t { kImage, kKernels, kPixels };

// The convolution of a node of type Conv, ConvTranspose, ConvGradient or ConvTransposeGradient.
// Throws what the attributes' constructors throw.
template <class Attributes, bool kTransposed, bool kGradient>
struct ConvNode {
  Attributes attributes;
  int64_t groups;
  ConvTensor result;  // what the node computes

  explicit ConvNode(const OperatorDef& def)
      : attributes(def), groups(detail::ConvGroups(def)), result(ResultOf(def)) {}

  // Returns the sizes of the convolution for the node's inputs 0 and 1.
  ConvSizes Sizes(const Shape& x, const Shape& w) const {
    return ConvSizes::Of(attributes, groups, x, w);
  }
  // Returns the input that is this tensor; -1 for the result.
  int InputOf(ConvTensor tensor) const {
    if (tensor == result) return -1;
    if (tensor == ConvTensor::kKernels) return 1;
    return (tensor == ConvTensor::kPixels) == kTransposed ? 0 : 2;
  }
  bool has_bias(const OperatorDef& def) const {
    return !kGradient && def.inputs().size() > 2 && !def.inputs()[2].empty();
  }

 private:
  static ConvTensor ResultOf(const OperatorDef& def) {
    if (kGradient && def.args().Get<std::string>("of", "X") == "W") return ConvTensor::kKernels;
    return kGradient == kTransposed ? ConvTensor::kPixels : ConvTensor::kImage;
  }
};

// The device memory of a run; null for the result, and for a missing bias.
struct ConvOperands {
  const void *image, *kernels, *pixels, *bias;
  void* result;
};

template <class Attributes, bool kTransposed, bool kGradient>
class CUDAConvOperator : public CUDAStandardOperator {
 public:
  using Node = ConvNode<Attributes, kTransposed, kGradient>;
  using CUDAStandardOperator::CUDAStandardOperator;

 protected:
  ConvOperands OperandsOf(Tensor& result) {
    const auto data = [this](ConvTensor tensor) -> const void* {
      const int input = node_.InputOf(tensor);
      return input < 0 ? nullptr : DenseInput(input).raw_data();
    };
    return {data(ConvTensor::kImage), data(ConvTensor::kKernels), data(ConvTensor::kPixels),
            node_.has_bias(def()) ? DenseInput(2).raw_data() : nullptr, result.raw_mutable_data()};
  }
  // Returns the sizes of the convolution for this run's inputs.
  ConvSizes Sizes() const { return node_.Sizes(Input(0).shape(), Input(1).shape()); }

  const Node node_{def()};
};

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_CONV_OPERATOR_HPP_
