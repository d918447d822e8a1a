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

}  // namespace detail

template <class Attributes, bool kTransposed, bool kGradient>
class CudnnConvOp final : public CUDAConvOperator<Attributes, kTransposed, kGradient> {
  using Base = CUDAConvOperator<Attributes, kTransposed, kGradient>;

 public:
  using Base::Base;

  // Asks cuDNN for the scratch memory of its algorithm. Plans ask only on machines with a device.
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    std::vector<KernelConfig> configs = ProposeTypes<FloatTypes>(query);
    for (size_t i = 0; i < 2; ++i)
      if (!query.inputs[i].shape.is_known())
        throw UnsupportedOperatorFeature(StrCat("the shape of input ", i, " is not known yet"));
    const typename Base::Node node(query.def);
    const ConvSizes sizes =
        node.Sizes(query.inputs[0].shape.ToShape(), query.inputs[1].shape.ToShape());
    const CUDADeviceGuard guard(query.def.device());
    auto& cudnn = CUDAStream::Get(query.def.device(), 0).template Slot<detail::CudnnHandle>();
    const std::lock_guard lock(cudnn.mutex);
    const detail::CudnnConvolution convolution(cudnn.handle, node.result, query.inputs[0].dtype,
                                               sizes, node.groups);
    configs[0].scratch_bytes = convolution.scratch_bytes();
    return configs;
  }

  bool RunOnDevice() override {
    return this->template Visit<FloatTypes>([&]<class T>() {
      Tensor* result = this->InferredOutput(0);
      if (result->numel() == 0) return;
      auto& cudnn = this->context_.stream().template Slot<detail::CudnnHandle>();
      const std::lock_guard lock(cudnn.mutex);
      if (!convolution_ || version_ != this->inference().version()) {
        convolution_.reset();
        convolution_.emplace(cudnn.handle, this->node_.result, kDTypeOf<T>, this->Sizes(),
                             this->node_.groups);
        version_ = this->inference().version();
      }
      const ConvOperands operands = this->OperandsOf(*result);
      convolution_->Run(cudnn.handle, operands, this->Scratch(convolution_->scratch_bytes()));
      if (operands.bias)
        ParallelFor(this->context_, result->numel(),
                    detail::AddBiasLoop<T>{
                        static_cast<const T*>(operands.bias), static_cast<T*>(operands.result),
                        result->dim(1), result->shape().NumelBetween(2, result->shape().rank())});
    });
  }

 private:
  std::optional<detail::CudnnConvolution> convolution_;
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
