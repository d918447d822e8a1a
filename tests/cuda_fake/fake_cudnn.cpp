// cuDNN made of loops on the streams of the fake runtime: the functions that the backend "cudnn"
// calls. Wrong arguments abort with a message.
#include <cudnn.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "fake_elements.hpp"
#include "fake_libraries.hpp"
#include "fake_runtime.hpp"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};
struct cudnnTensorStruct {
  opkit::DType dtype = opkit::DType::kUndefined;
  std::vector<int> dims;
};
struct cudnnFilterStruct {
  opkit::DType dtype = opkit::DType::kUndefined;
  std::vector<int> dims;
};
struct cudnnConvolutionStruct {
  std::vector<int> pads, strides, dilations;
  int groups = 1;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

namespace {

[[noreturn]] void Refuse(const char* what) {
  std::fprintf(stderr, "fake cuDNN: %s\n", what);
  std::abort();
}
void Require(bool condition, const char* what) {
  if (!condition) Refuse(what);
}

struct State {
  std::mutex mutex;
  std::set<const void*> objects;  // handles and descriptors that exist
  std::vector<fake::CudnnCall> calls;
  cudnnStatus_t failure = CUDNN_STATUS_SUCCESS;
  bool has_algorithms = true;
};
State& state() {
  static auto* state = new State;
  return *state;
}
template <class T>
cudnnStatus_t Create(T** object) {
  std::lock_guard lock(state().mutex);
  state().objects.insert(*object = new T);
  return CUDNN_STATUS_SUCCESS;
}
template <class T>
cudnnStatus_t Destroy(T* object) {
  std::lock_guard lock(state().mutex);
  Require(state().objects.erase(object) == 1, "destroys what does not exist");
  delete object;
  return CUDNN_STATUS_SUCCESS;
}
template <class T>
T& Known(T* object) {
  std::lock_guard lock(state().mutex);
  Require(state().objects.contains(object), "a handle or descriptor that does not exist");
  return *object;
}
opkit::DType DTypeOf(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_DOUBLE:
      return opkit::DType::kFloat64;
    case CUDNN_DATA_FLOAT:
      return opkit::DType::kFloat32;
    case CUDNN_DATA_HALF:
      return opkit::DType::kFloat16;
    case CUDNN_DATA_BFLOAT16:
      return opkit::DType::kBFloat16;
    default:
      Refuse("a type that the backend does not use");
  }
}
int64_t Count(const std::vector<int>& dims) {
  int64_t count = 1;
  for (const int dim : dims) count *= dim;
  return count;
}
void RequireMemory(const void* data, opkit::DType dtype, const std::vector<int>& dims,
                   const char* what) {
  const int64_t bytes = Count(dims) * opkit::BitSize(dtype) / 8;
  Require(data && fake::DeviceOf(data) >= 0 &&
              fake::DeviceOf(static_cast<const char*>(data) + bytes - 1) >= 0,
          what);
}

// A convolution, from x by w to y.
struct Convolution {
  cudnnTensorStruct x, y;
  cudnnFilterStruct w;
  cudnnConvolutionStruct windows;

  Convolution(cudnnTensorDescriptor_t of_x, cudnnFilterDescriptor_t of_w,
              cudnnConvolutionDescriptor_t of_windows, cudnnTensorDescriptor_t of_y)
      : x(Known(of_x)), y(Known(of_y)), w(Known(of_w)), windows(Known(of_windows)) {
    const size_t rank = x.dims.size();
    Require(rank == 4 || rank == 5, "a tensor without two or three spatial axes");
    Require(y.dims.size() == rank && w.dims.size() == rank && windows.pads.size() == rank - 2,
            "different ranks");
    Require(x.dtype == y.dtype && x.dtype == w.dtype, "tensors of several types");
    const bool is_double = x.dtype == opkit::DType::kFloat64;
    Require(windows.compute == (is_double ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT),
            "another type of sums");
    Require(x.dtype != opkit::DType::kFloat32 || windows.math == CUDNN_FMA_MATH,
            "a math type that may round to TF32");
    const int groups = windows.groups;
    Require(x.dims[0] == y.dims[0] && y.dims[1] == w.dims[0] && x.dims[1] == w.dims[1] * groups &&
                w.dims[0] % groups == 0,
            "channels that do not fit");
    for (size_t i = 0; i < rank - 2; ++i) {
      const int extent = (w.dims[i + 2] - 1) * windows.dilations[i] + 1;
      Require(
          y.dims[i + 2] == (x.dims[i + 2] + 2 * windows.pads[i] - extent) / windows.strides[i] + 1,
          "an output extent that does not fit the pads");
    }
  }
  // Returns the bytes that an algorithm needs.
  size_t workspace() const { return static_cast<size_t>(Count(w.dims)) * 8; }
  void RequireWorkspace(void* data, size_t size, int algo) const {
    Require(algo == 1, "an algorithm that was not offered");
    Require(size >= workspace(), "a workspace that is too small");
    RequireMemory(data, opkit::DType::kUInt8, {static_cast<int>(workspace())},
                  "a workspace that is not device memory");
  }
  // Calls f(i, j, k) with the numbers of the elements of x, w and y of each product.
  template <class F>
  void Each(F f) const {
    const size_t axes = x.dims.size() - 2;
    const int64_t x_pixels = Count({x.dims.begin() + 2, x.dims.end()});
    const int64_t y_pixels = Count({y.dims.begin() + 2, y.dims.end()});
    const int64_t taps = Count({w.dims.begin() + 2, w.dims.end()});
    for (int64_t pixel = 0; pixel < y_pixels; ++pixel)
      for (int64_t tap = 0; tap < taps; ++tap) {
        int64_t at = 0, step = 1, o = pixel, k = tap;
        bool inside = true;
        for (size_t axis = axes; axis-- > 0;) {
          const int64_t i = o % y.dims[axis + 2] * windows.strides[axis] - windows.pads[axis] +
                            k % w.dims[axis + 2] * windows.dilations[axis];
          inside = inside && i >= 0 && i < x.dims[axis + 2];
          at += i * step;
          step *= x.dims[axis + 2];
          o /= y.dims[axis + 2];
          k /= w.dims[axis + 2];
        }
        if (!inside) continue;
        for (int64_t n = 0; n < x.dims[0]; ++n)
          for (int64_t m = 0; m < y.dims[1]; ++m)
            for (int64_t c = 0; c < w.dims[1]; ++c) {
              const int64_t channel = m / (w.dims[0] / windows.groups) * w.dims[1] + c;
              f((n * x.dims[1] + channel) * x_pixels + at, (m * w.dims[1] + c) * taps + tap,
                (n * y.dims[1] + m) * y_pixels + pixel);
            }
      }
  }
};

// The operands of a convolution, in the order in which Convolution::Each numbers their elements.
enum Operand : size_t { kX, kW, kY };

// Issues the sums of the products of two operands, which are the third one.
cudnnStatus_t Issue(cudnnHandle_t handle, const Convolution& conv, const char* name,
                    const void* alpha, const void* beta, std::array<const void*, 3> operands,
                    Operand result, int algo, void* workspace, size_t workspace_size) {
  Known(handle);
  conv.RequireWorkspace(workspace, workspace_size, algo);
  const opkit::DType dtype = conv.x.dtype;
  RequireMemory(operands[kX], dtype, conv.x.dims, "x or dx is not in device memory");
  RequireMemory(operands[kW], dtype, conv.w.dims, "w or dw is not in device memory");
  RequireMemory(operands[kY], dtype, conv.y.dims, "y or dy is not in device memory");
  const opkit::DType factors =
      dtype == opkit::DType::kFloat64 ? opkit::DType::kFloat64 : opkit::DType::kFloat32;
  Require(alpha && beta, "no factors");
  Require(fake::Load(alpha, 0, factors) == 1 && fake::Load(beta, 0, factors) == 0,
          "factors that the backend does not use");
  {
    std::lock_guard lock(state().mutex);
    if (state().failure != CUDNN_STATUS_SUCCESS) return state().failure;
    state().calls.push_back({name, conv.windows.groups});
  }
  fake::Enqueue(handle->stream, [=] {
    std::memset(workspace, 0xff, conv.workspace());
    const size_t a = (result + 1) % 3, b = (result + 2) % 3;
    const std::vector<int>* const dims[] = {&conv.x.dims, &conv.w.dims, &conv.y.dims};
    std::vector<double> sums(static_cast<size_t>(Count(*dims[result])), 0);
    conv.Each([&](int64_t x, int64_t w, int64_t y) {
      const int64_t at[] = {x, w, y};
      sums[static_cast<size_t>(at[result])] +=
          fake::Load(operands[a], at[a], dtype) * fake::Load(operands[b], at[b], dtype);
    });
    for (size_t r = 0; r < sums.size(); ++r)
      fake::Store(const_cast<void*>(operands[result]), static_cast<int64_t>(r), dtype, sums[r]);
  });
  return CUDNN_STATUS_SUCCESS;
}

// Answers as cuDNN does: with an algorithm that is not deterministic, and one with tensor cores,
// before the one that float32 may use.
template <class Answer>
cudnnStatus_t Answers(cudnnHandle_t handle, const Convolution& conv, int requested, int* count,
                      Answer* answers) {
  Known(handle);
  Require(requested >= 3 && count && answers, "no place for algorithms");
  *count = 0;
  // cuDNN refuses a convolution that it does not support before it runs.
  if (CUDNN_STATUS_CATEGORY(state().failure) == CUDNN_STATUS_NOT_SUPPORTED) return state().failure;
  if (!state().has_algorithms) return CUDNN_STATUS_SUCCESS;
  const auto add = [&](int algo, cudnnDeterminism_t determinism, cudnnMathType_t math) {
    Answer& answer = answers[(*count)++];
    answer = {};
    answer.algo = static_cast<decltype(answer.algo)>(algo);
    answer.status = CUDNN_STATUS_SUCCESS;
    answer.memory = conv.workspace();
    answer.determinism = determinism;
    answer.mathType = math;
  };
  const bool is_narrow = opkit::BitSize(conv.x.dtype) == 16;
  add(0, CUDNN_NON_DETERMINISTIC, CUDNN_FMA_MATH);
  add(is_narrow ? 1 : 0, CUDNN_DETERMINISTIC, CUDNN_TENSOR_OP_MATH);
  add(is_narrow ? 0 : 1, CUDNN_DETERMINISTIC, CUDNN_FMA_MATH);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t Measure(cudnnHandle_t handle, const Convolution& conv, size_t* bytes) {
  Known(handle);
  *bytes = conv.workspace();
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

namespace fake {
std::vector<CudnnCall> TakeCudnnCalls() {
  std::lock_guard lock(state().mutex);
  return std::exchange(state().calls, {});
}
void FailCudnn(int status) { state().failure = static_cast<cudnnStatus_t>(status); }
void OfferCudnnAlgorithms(bool offer) { state().has_algorithms = offer; }
}  // namespace fake

extern "C" {

const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_EXECUTION_FAILED ? "CUDNN_STATUS_EXECUTION_FAILED"
                                                 : "CUDNN_STATUS_FAKE";
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) { return Create(handle); }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  Known(handle).stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensor) {
  return Create(tensor);
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) {
  return Destroy(tensor);
}
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* filter) {
  return Create(filter);
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) {
  return Destroy(filter);
}
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* windows) {
  return Create(windows);
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t windows) {
  return Destroy(windows);
}
cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensor, cudnnDataType_t type,
                                         int rank, const int* dims, const int* strides) {
  Require(rank >= 4 && dims && strides, "a tensor of fewer than four axes");
  int64_t step = 1;
  for (int i = rank; i-- > 0; step *= dims[i])
    Require(dims[i] > 0 && strides[i] == step, "a tensor that is empty or not dense");
  Known(tensor) = {DTypeOf(type), {dims, dims + rank}};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int rank, const int* dims) {
  Require(format == CUDNN_TENSOR_NCHW, "kernels in another format");
  Require(rank >= 4 && dims, "kernels of fewer than four axes");
  for (int i = 0; i < rank; ++i) Require(dims[i] > 0, "empty kernels");
  Known(filter) = {DTypeOf(type), {dims, dims + rank}};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t windows, int axes,
                                              const int* pads, const int* strides,
                                              const int* dilations, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute) {
  Require(mode == CUDNN_CROSS_CORRELATION, "kernels that are turned around");
  for (int i = 0; i < axes; ++i)
    Require(pads[i] >= 0 && strides[i] > 0 && dilations[i] > 0, "numbers of windows out of range");
  auto& found = Known(windows);
  found.pads = {pads, pads + axes};
  found.strides = {strides, strides + axes};
  found.dilations = {dilations, dilations + axes};
  found.compute = compute;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t windows, int groups) {
  Require(groups > 0, "no groups");
  Known(windows).groups = groups;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t windows,
                                          cudnnMathType_t math) {
  Known(windows).math = math;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnFilterDescriptor_t w,
    const cudnnConvolutionDescriptor_t windows, const cudnnTensorDescriptor_t y,
    const int requested, int* count, cudnnConvolutionFwdAlgoPerf_t* answers) {
  return Answers(handle, Convolution(x, w, windows, y), requested, count, answers);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t windows, const cudnnTensorDescriptor_t dx,
    const int requested, int* count, cudnnConvolutionBwdDataAlgoPerf_t* answers) {
  return Answers(handle, Convolution(dx, w, windows, dy), requested, count, answers);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t windows, const cudnnFilterDescriptor_t dw,
    const int requested, int* count, cudnnConvolutionBwdFilterAlgoPerf_t* answers) {
  return Answers(handle, Convolution(x, dw, windows, dy), requested, count, answers);
}
cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t handle,
                                                      const cudnnTensorDescriptor_t x,
                                                      const cudnnFilterDescriptor_t w,
                                                      const cudnnConvolutionDescriptor_t windows,
                                                      const cudnnTensorDescriptor_t y,
                                                      cudnnConvolutionFwdAlgo_t, size_t* bytes) {
  return Measure(handle, Convolution(x, w, windows, y), bytes);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t windows, const cudnnTensorDescriptor_t dx,
    cudnnConvolutionBwdDataAlgo_t, size_t* bytes) {
  return Measure(handle, Convolution(dx, w, windows, dy), bytes);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t windows, const cudnnFilterDescriptor_t dw,
    cudnnConvolutionBwdFilterAlgo_t, size_t* bytes) {
  return Measure(handle, Convolution(x, dw, windows, dy), bytes);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                      const cudnnTensorDescriptor_t x_desc, const void* x,
                                      const cudnnFilterDescriptor_t w_desc, const void* w,
                                      const cudnnConvolutionDescriptor_t windows,
                                      cudnnConvolutionFwdAlgo_t algo, void* workspace, size_t size,
                                      const void* beta, const cudnnTensorDescriptor_t y_desc,
                                      void* y) {
  return Issue(handle, Convolution(x_desc, w_desc, windows, y_desc), "forward", alpha, beta,
               {x, w, y}, kY, algo, workspace, size);
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           const cudnnFilterDescriptor_t w_desc, const void* w,
                                           const cudnnTensorDescriptor_t dy_desc, const void* dy,
                                           const cudnnConvolutionDescriptor_t windows,
                                           cudnnConvolutionBwdDataAlgo_t algo, void* workspace,
                                           size_t size, const void* beta,
                                           const cudnnTensorDescriptor_t dx_desc, void* dx) {
  return Issue(handle, Convolution(dx_desc, w_desc, windows, dy_desc), "backward data", alpha, beta,
               {dx, w, dy}, kX, algo, workspace, size);
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             const cudnnTensorDescriptor_t x_desc, const void* x,
                                             const cudnnTensorDescriptor_t dy_desc, const void* dy,
                                             const cudnnConvolutionDescriptor_t windows,
                                             cudnnConvolutionBwdFilterAlgo_t algo, void* workspace,
                                             size_t size, const void* beta,
                                             const cudnnFilterDescriptor_t dw_desc, void* dw) {
  return Issue(handle, Convolution(x_desc, dw_desc, windows, dy_desc), "backward filter", alpha,
               beta, {x, dw, dy}, kW, algo, workspace, size);
}

}  // extern "C"
