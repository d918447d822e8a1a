// Conv, ConvTranspose and their gradients of the backend "cudnn", over one to three spatial axes:
// float32, with TF32 off, float64, float16 and bfloat16, whose sums are in float32.
#ifndef OPKIT_BACKENDS_CUDA_LIBRARIES_CUDNN_CONV_HPP_
#define OPKIT_BACKENDS_CUDA_LIBRARIES_CUDNN_CONV_HPP_

#include "opkit/backends/cuda/libraries/cudnn.hpp"
#include "opkit/backends/cuda/ops/sum_type.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Adds the bias of its channel to each element.
template <class T>
struct AddBiasLoop {
  const T* bias;
  T* y;
  int64_t channels, pixels;
  OPKIT_DEVICE void operator()(int64_t i) const {
    using Sum = CUDASumType<T>;
    y[i] = static_cast<T>(static_cast<Sum>(y[i]) + static_cast<Sum>(bias[i / pixels % channels]));
  }
};

// An image and its copy with pads, for convolutions whose pads are uneven.
struct PaddedImage {
  ConvExtents given, padded;
  int64_t planes;

  PaddedImage(const ConvSizes& sizes, const ConvSizes& even, int64_t groups)
      : given(sizes, groups), padded(even, groups), planes(sizes.batch * groups * sizes.channels) {}
  // Returns the number of elements of the copy; 0 if none is needed.
  int64_t size() const {
    for (int i = 0; i < ConvExtents::kAxes; ++i)
      if (!(given.axes[i] == padded.axes[i])) return planes * padded.input_pixels;
    return 0;
  }
  // Returns the element of the image that is element i of the copy; -1 for a pad.
  OPKIT_HOST_DEVICE int64_t ImageOf(int64_t i) const {
    const SpatialIndex at(i % padded.input_pixels, padded.axes[1].input, padded.axes[2].input);
    int64_t from = i / padded.input_pixels;
    for (int axis = 0; axis < ConvExtents::kAxes; ++axis) {
      const int64_t x = at.at[axis] - (given.axes[axis].pad_begin - padded.axes[axis].pad_begin);
      if (x < 0 || x >= given.axes[axis].input) return -1;
      from = from * given.axes[axis].input + x;
    }
    return from;
  }
};
template <class T>
struct PadImageLoop {
  PaddedImage pads;
  const T* image;
  T* copy;
  OPKIT_DEVICE void operator()(int64_t i) const {
    const int64_t from = pads.ImageOf(i);
    copy[i] = from < 0 ? static_cast<T>(0.f) : image[from];
  }
};
template <class T>
struct CropImageLoop {
  PaddedImage pads;
  const T* copy;
  T* image;
  OPKIT_DEVICE void operator()(int64_t i) const {
    if (const int64_t to = pads.ImageOf(i); to >= 0) image[to] = copy[i];
  }
};

// The work of cuDNN for a node, and the copy of its image.
struct CudnnWork {
  PaddedImage pads;
  CudnnConvolution convolution;

  CudnnWork(cudnnHandle_t handle, ConvTensor result, DType dtype, const ConvSizes& sizes,
            int64_t groups)
      : CudnnWork(handle, result, dtype, sizes, WithEvenPads(sizes), groups) {}

  // The scratch memory begins with cuDNN's, behind which the copy lies.
  int64_t copy_at() const { return (convolution.scratch_bytes() + 255) / 256 * 256; }
  int64_t scratch_bytes(DType dtype) const {
    if (pads.size() == 0) return convolution.scratch_bytes();
    return copy_at() + pads.size() * static_cast<int64_t>(BitSize(dtype) / 8);
  }

 private:
  CudnnWork(cudnnHandle_t handle, ConvTensor result, DType dtype, const ConvSizes& sizes,
            const ConvSizes& even, int64_t groups)
      : pads(sizes, even, groups), convolution(handle, result, dtype, even, groups) {}
};

}  // namespace detail

template <class Attributes, bool kTransposed, bool kGradient>
class CudnnConvOp final : public CUDAConvOperator<Attributes, kTransposed, kGradient> {
  using Base = CUDAConvOperator<Attributes, kTransposed, kGradient>;

 public:
  using Base::Base;

  // Asks cuDNN for the scratch memory of its algorithm. A machine without the device cannot ask.
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    std::vector<KernelConfig> configs = ProposeTypes<FloatTypes>(query);
    for (size_t i = 0; i < 2; ++i)
      if (!query.inputs[i].shape.is_known())
        throw UnsupportedOperatorFeature(StrCat("the shape of input ", i, " is not known yet"));
    if (query.def.device().index >= CUDADeviceCount()) return configs;
    const typename Base::Node node(query.def);
    const ConvSizes sizes =
        node.Sizes(query.inputs[0].shape.ToShape(), query.inputs[1].shape.ToShape());
    const CUDADeviceGuard guard(query.def.device());
    auto& cudnn = CUDAStream::Get(query.def.device(), 0).template Slot<detail::CudnnHandle>();
    const DType dtype = query.inputs[0].dtype;
    const detail::CudnnWork work(cudnn.handle, node.result, dtype, sizes, node.groups);
    configs[0].scratch_bytes = work.scratch_bytes(dtype);
    return configs;
  }

  bool RunOnDevice() override {
    return this->template Visit<FloatTypes>([&]<class T>() {
      Tensor* result = this->InferredOutput(0);
      if (result->numel() == 0) return;
      auto& cudnn = this->context_.stream().template Slot<detail::CudnnHandle>();
      if (!work_ || version_ != this->inference().version()) {
        work_.reset();
        work_.emplace(cudnn.handle, this->node_.result, kDTypeOf<T>, this->Sizes(),
                      this->node_.groups);
        version_ = this->inference().version();
      }
      const ConvOperands operands = this->OperandsOf(*result);
      auto* scratch = static_cast<char*>(this->Scratch(work_->scratch_bytes(kDTypeOf<T>)));
      if (work_->pads.size() > 0)
        RunPadded<T>(cudnn.handle, operands, scratch);
      else
        work_->convolution.Run(cudnn.handle, operands, scratch);
      if (operands.bias)
        ParallelFor(this->context_, result->numel(),
                    detail::AddBiasLoop<T>{
                        static_cast<const T*>(operands.bias), static_cast<T*>(operands.result),
                        result->dim(1), result->shape().NumelBetween(2, result->shape().rank())});
    });
  }

 private:
  template <class T>
  void RunPadded(cudnnHandle_t handle, ConvOperands operands, char* scratch) {
    const detail::PaddedImage& pads = work_->pads;
    auto* copy = reinterpret_cast<T*>(scratch + work_->copy_at());
    auto* image = static_cast<T*>(operands.result);
    const bool makes_image = this->node_.result == ConvTensor::kImage;
    if (makes_image) {
      operands.result = copy;
    } else {
      ParallelFor(this->context_, pads.size(),
                  detail::PadImageLoop<T>{pads, static_cast<const T*>(operands.image), copy});
      operands.image = copy;
    }
    work_->convolution.Run(handle, operands, scratch);
    if (makes_image)
      ParallelFor(this->context_, pads.size(), detail::CropImageLoop<T>{pads, copy, image});
  }

  std::optional<detail::CudnnWork> work_;
  uint64_t version_ = 0;  // of the shapes for which it was made
};

OPKIT_CUDA_OPERATOR_OF(kCudnnBackend, Conv, CudnnConvOp<WindowAttributes, false, false>);
OPKIT_CUDA_OPERATOR_OF(kCudnnBackend, ConvGradient, CudnnConvOp<WindowAttributes, false, true>);
OPKIT_CUDA_OPERATOR_OF(kCudnnBackend, ConvTranspose,
                       CudnnConvOp<ConvTransposeAttributes, true, false>);
OPKIT_CUDA_OPERATOR_OF(kCudnnBackend, ConvTransposeGradient,
                       CudnnConvOp<ConvTransposeAttributes, true, true>);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_LIBRARIES_CUDNN_CONV_HPP_
