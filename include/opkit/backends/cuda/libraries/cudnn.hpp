// CudnnConvolution: a convolution or one of its gradients by cuDNN, prepared once for its extents
// and kept by an operator. Of the backend "cudnn". It calls cuDNN's functions of convolutions,
// which cuDNN 9 still has, although it recommends graphs of operations for new programs.
#ifndef OPKIT_BACKENDS_CUDA_LIBRARIES_CUDNN_HPP_
#define OPKIT_BACKENDS_CUDA_LIBRARIES_CUDNN_HPP_

#include <cudnn.h>

#include "opkit/backends/cuda/ops/conv_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

inline constexpr const char* kCudnnBackend = "cudnn";
inline constexpr int kCudnnRank = 200;
OPKIT_REGISTER_BACKEND_RANK(kCudnnBackend, kCudnnRank);

namespace detail {

// Algorithms that need more scratch memory are not used.
inline constexpr int64_t kCudnnMostScratch = int64_t{256} << 20;

// Throws an Error "<what> failed: <name of the status>" unless the call succeeded. It is an
// UnsupportedOperatorFeature if cuDNN does not support the call's arguments.
inline void CheckCudnn(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  const std::string message = StrCat(what, " failed: ", cudnnGetErrorString(status));
  if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED)
    throw UnsupportedOperatorFeature(message);
  ErrorCode code = ErrorCode::kOperatorFailed;
  if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_BAD_PARAM) code = ErrorCode::kInvalidArgument;
  if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
      status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
    code = ErrorCode::kOutOfMemory;
  throw Error(code, message);
}

// The handle for the work of one thread on one stream (CUDAStream::Slot).
struct CudnnHandle {
  explicit CudnnHandle(cudaStream_t stream) {
    CheckCudnn(cudnnCreate(&handle), "cudnnCreate");
    CheckCudnn(cudnnSetStream(handle, stream), "cudnnSetStream");
  }
  cudnnHandle_t handle = nullptr;
};

// Owns a descriptor of cuDNN.
template <class T, cudnnStatus_t (*kCreate)(T*), cudnnStatus_t (*kDestroy)(T)>
class CudnnDescriptor {
 public:
  CudnnDescriptor() { CheckCudnn(kCreate(&descriptor_), "the creation of a cuDNN descriptor"); }
  CudnnDescriptor(const CudnnDescriptor&) = delete;
  CudnnDescriptor& operator=(const CudnnDescriptor&) = delete;
  ~CudnnDescriptor() { kDestroy(descriptor_); }
  operator T() const { return descriptor_; }

 private:
  T descriptor_ = nullptr;
};
using CudnnTensor = CudnnDescriptor<cudnnTensorDescriptor_t, &cudnnCreateTensorDescriptor,
                                    &cudnnDestroyTensorDescriptor>;
using CudnnFilter = CudnnDescriptor<cudnnFilterDescriptor_t, &cudnnCreateFilterDescriptor,
                                    &cudnnDestroyFilterDescriptor>;
using CudnnWindows =
    CudnnDescriptor<cudnnConvolutionDescriptor_t, &cudnnCreateConvolutionDescriptor,
                    &cudnnDestroyConvolutionDescriptor>;

// True if the windows are those of an axis with pad_begin at both ends, as cuDNN has it. A larger
// pad at the end may reach no window.
inline bool HasEvenPads(const WindowAxis& axis) {
  const int64_t room = axis.input + 2 * axis.pad_begin - axis.extent();
  return room >= 0 && room / axis.stride + 1 == axis.output;
}
// Returns the sizes of the same convolution of an image that has uneven pads as elements. Its pads
// are even, unless a step or more of the image lies behind the last window, which output_padding
// and output_shape of ConvTranspose can do.
inline ConvSizes WithEvenPads(ConvSizes sizes) {
  sizes.input_pixels = 1;
  for (WindowAxis& axis : sizes.axes) {
    if (!HasEvenPads(axis)) {
      axis.input =
          (std::max)(axis.input + axis.pad_begin, (axis.output - 1) * axis.stride + axis.extent());
      axis.pad_begin = axis.pad_end = 0;
    }
    sizes.input_pixels *= axis.input;
  }
  return sizes;
}

// Not thread-safe, like the operator that owns it.
class CudnnConvolution {
 public:
  // Describes the convolution, whose pads are even, and asks cuDNN for its fastest deterministic
  // algorithm. Throws UnsupportedOperatorFeature if cuDNN has none.
  CudnnConvolution(cudnnHandle_t handle, ConvTensor result, DType dtype, const ConvSizes& sizes,
                   int64_t groups)
      : result_(result), is_double_(dtype == DType::kFloat64) {
    Describe(dtype, sizes, groups);
    const bool found = result == ConvTensor::kPixels  ? ChooseForPixels(handle)
                       : result == ConvTensor::kImage ? ChooseForImage(handle)
                                                      : ChooseForKernels(handle);
    if (!found) throw UnsupportedOperatorFeature("cuDNN has no deterministic algorithm for it");
  }

  int64_t scratch_bytes() const { return scratch_bytes_; }

  // Issues the work on the handle's stream. Does not add the bias.
  void Run(cudnnHandle_t handle, const ConvOperands& x, void* scratch) const {
    const auto bytes = static_cast<size_t>(scratch_bytes_);
    switch (result_) {
      case ConvTensor::kPixels:
        CheckCudnn(cudnnConvolutionForward(handle, One(), image_, x.image, kernels_, x.kernels,
                                           windows_, static_cast<cudnnConvolutionFwdAlgo_t>(algo_),
                                           scratch, bytes, Zero(), pixels_, x.result),
                   "cudnnConvolutionForward");
        return;
      case ConvTensor::kImage:
        CheckCudnn(cudnnConvolutionBackwardData(handle, One(), kernels_, x.kernels, pixels_,
                                                x.pixels, windows_,
                                                static_cast<cudnnConvolutionBwdDataAlgo_t>(algo_),
                                                scratch, bytes, Zero(), image_, x.result),
                   "cudnnConvolutionBackwardData");
        return;
      case ConvTensor::kKernels:
        CheckCudnn(cudnnConvolutionBackwardFilter(
                       handle, One(), image_, x.image, pixels_, x.pixels, windows_,
                       static_cast<cudnnConvolutionBwdFilterAlgo_t>(algo_), scratch, bytes, Zero(),
                       kernels_, x.result),
                   "cudnnConvolutionBackwardFilter");
    }
  }

 private:
  static cudnnDataType_t TypeOf(DType dtype) {
    switch (dtype) {
      case DType::kFloat64:
        return CUDNN_DATA_DOUBLE;
      case DType::kFloat16:
        return CUDNN_DATA_HALF;
      case DType::kBFloat16:
        return CUDNN_DATA_BFLOAT16;
      default:
        return CUDNN_DATA_FLOAT;
    }
  }
  static int Narrow(int64_t number) {
    if (number > INT32_MAX || number < 1)
      throw UnsupportedOperatorFeature(StrCat("cuDNN has no extent of ", number));
    return static_cast<int>(number);
  }
  static void SetTensor(cudnnTensorDescriptor_t tensor, cudnnDataType_t type,
                        const std::vector<int>& dims) {
    std::vector<int> strides(dims.size(), 1);
    for (size_t i = dims.size() - 1; i > 0; --i)
      strides[i - 1] = Narrow(int64_t{strides[i]} * dims[i]);
    CheckCudnn(cudnnSetTensorNdDescriptor(tensor, type, static_cast<int>(dims.size()), dims.data(),
                                          strides.data()),
               "cudnnSetTensorNdDescriptor");
  }
  void Describe(DType dtype, const ConvSizes& sizes, int64_t groups) {
    // cuDNN has two or three spatial axes.
    WindowAxes axes = sizes.axes;
    if (axes.size() == 1) {
      axes.insert(axes.begin(), WindowAxis());
      axes[0].input = axes[0].output = 1;
    }
    const int channels = Narrow(groups * sizes.channels), outputs = Narrow(groups * sizes.outputs);
    const int batch = Narrow(sizes.batch);
    std::vector<int> image{batch, channels}, pixels{batch, outputs},
        kernels{outputs, Narrow(sizes.channels)}, pads, strides, dilations;
    for (const WindowAxis& axis : axes) {
      if (!HasEvenPads(axis))
        throw UnsupportedOperatorFeature("a step or more of the image lies behind the last window");
      image.push_back(Narrow(axis.input));
      pixels.push_back(Narrow(axis.output));
      kernels.push_back(Narrow(axis.kernel));
      pads.push_back(static_cast<int>(axis.pad_begin));
      strides.push_back(Narrow(axis.stride));
      dilations.push_back(Narrow(axis.dilation));
    }
    const cudnnDataType_t type = TypeOf(dtype);
    SetTensor(image_, type, image);
    SetTensor(pixels_, type, pixels);
    CheckCudnn(cudnnSetFilterNdDescriptor(kernels_, type, CUDNN_TENSOR_NCHW,
                                          static_cast<int>(kernels.size()), kernels.data()),
               "cudnnSetFilterNdDescriptor");
    CheckCudnn(
        cudnnSetConvolutionNdDescriptor(windows_, static_cast<int>(axes.size()), pads.data(),
                                        strides.data(), dilations.data(), CUDNN_CROSS_CORRELATION,
                                        is_double_ ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT),
        "cudnnSetConvolutionNdDescriptor");
    CheckCudnn(cudnnSetConvolutionGroupCount(windows_, Narrow(groups)),
               "cudnnSetConvolutionGroupCount");
    // The default would round float32 to TF32.
    rounds_ = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
    SetMath(rounds_ ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH);
  }
  void SetMath(cudnnMathType_t math) {
    CheckCudnn(cudnnSetConvolutionMathType(windows_, math), "cudnnSetConvolutionMathType");
  }

  // Takes the first of cuDNN's answers, which are the fastest first, that can be used. Answers with
  // tensor cores are used for the 16-bit types only. size(algorithm, &bytes) measures its memory.
  template <class Answer, class Size>
  bool Choose(const std::vector<Answer>& answers, int count, Size size) {
    for (int i = 0; i < count; ++i) {
      const Answer& answer = answers[Index(i)];
      const bool has_tensor_cores = answer.mathType == CUDNN_TENSOR_OP_MATH ||
                                    answer.mathType == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION;
      if (answer.status != CUDNN_STATUS_SUCCESS || answer.determinism != CUDNN_DETERMINISTIC ||
          (has_tensor_cores && !rounds_))
        continue;
      if (rounds_) SetMath(answer.mathType);
      size_t bytes = 0;
      if (size(answer.algo, &bytes) != CUDNN_STATUS_SUCCESS || bytes > size_t{kCudnnMostScratch})
        continue;
      algo_ = answer.algo;
      scratch_bytes_ = static_cast<int64_t>(bytes);
      return true;
    }
    return false;
  }
  bool ChooseForPixels(cudnnHandle_t handle) {
    std::vector<cudnnConvolutionFwdAlgoPerf_t> answers(2 * CUDNN_CONVOLUTION_FWD_ALGO_COUNT);
    int count = 0;
    CheckCudnn(cudnnGetConvolutionForwardAlgorithm_v7(handle, image_, kernels_, windows_, pixels_,
                                                      static_cast<int>(answers.size()), &count,
                                                      answers.data()),
               "cudnnGetConvolutionForwardAlgorithm_v7");
    return Choose(answers, count, [&](cudnnConvolutionFwdAlgo_t algo, size_t* bytes) {
      return cudnnGetConvolutionForwardWorkspaceSize(handle, image_, kernels_, windows_, pixels_,
                                                     algo, bytes);
    });
  }
  bool ChooseForImage(cudnnHandle_t handle) {
    std::vector<cudnnConvolutionBwdDataAlgoPerf_t> answers(2 *
                                                           CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT);
    int count = 0;
    CheckCudnn(cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, kernels_, pixels_, windows_,
                                                           image_, static_cast<int>(answers.size()),
                                                           &count, answers.data()),
               "cudnnGetConvolutionBackwardDataAlgorithm_v7");
    return Choose(answers, count, [&](cudnnConvolutionBwdDataAlgo_t algo, size_t* bytes) {
      return cudnnGetConvolutionBackwardDataWorkspaceSize(handle, kernels_, pixels_, windows_,
                                                          image_, algo, bytes);
    });
  }
  bool ChooseForKernels(cudnnHandle_t handle) {
    std::vector<cudnnConvolutionBwdFilterAlgoPerf_t> answers(
        2 * CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT);
    int count = 0;
    CheckCudnn(cudnnGetConvolutionBackwardFilterAlgorithm_v7(
                   handle, image_, pixels_, windows_, kernels_, static_cast<int>(answers.size()),
                   &count, answers.data()),
               "cudnnGetConvolutionBackwardFilterAlgorithm_v7");
    return Choose(answers, count, [&](cudnnConvolutionBwdFilterAlgo_t algo, size_t* bytes) {
      return cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, image_, pixels_, windows_,
                                                            kernels_, algo, bytes);
    });
  }

  // Return the factors 1 and 0 in the type that cuDNN reads.
  const void* One() const {
    static constexpr float kOne = 1;
    static constexpr double kDoubleOne = 1;
    return is_double_ ? static_cast<const void*>(&kDoubleOne) : &kOne;
  }
  const void* Zero() const {
    static constexpr double kZero = 0;  // a float of 0 has the same bytes
    return &kZero;
  }

  const ConvTensor result_;
  const bool is_double_;
  bool rounds_ = false;  // products of 16-bit numbers
  CudnnTensor image_, pixels_;
  CudnnFilter kernels_;
  CudnnWindows windows_;
  int algo_ = 0;  // of the enumeration that belongs to result_
  int64_t scratch_bytes_ = 0;
};

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_LIBRARIES_CUDNN_HPP_
