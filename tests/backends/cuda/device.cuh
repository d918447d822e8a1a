// What the CUDA tests share: skipping where there is no device, and a gate that holds a stream up.
#ifndef OPKIT_TESTS_BACKENDS_CUDA_DEVICE_CUH_
#define OPKIT_TESTS_BACKENDS_CUDA_DEVICE_CUH_

#include <doctest/doctest.h>

#include <cstdlib>

#include "opkit/backends/cuda/parallel_for.hpp"

// Opens every test that runs something on a device.
#define NEEDS_CUDA_DEVICE()              \
  if (::opkit::CUDADeviceCount() == 0) { \
    MESSAGE("skipped: no CUDA device");  \
    return;                              \
  }                                      \
  static_assert(true)

// A kernel that is loaded at its first launch may wait for all streams, and so for a gate's.
inline const int kKernelsAreLoadedAtOnce = setenv("CUDA_MODULE_LOADING", "EAGER", /*replace=*/0);

inline constexpr opkit::Device kCuda0{opkit::DeviceType::kCUDA, 0};

static __global__ void SpinUntil(const volatile int* open) {
  while (*open == 0) {
  }
}

// Decorates the cases that compute-sanitizer leaves out: those that hold a stream up, since it may
// wait for a kernel before it returns from the launch, and those whose kernels fail on purpose.
inline const auto kOutsideSanitizer = doctest::test_suite("outside sanitizer");

// Holds the stream up with a kernel that spins, so that no host thread of CUDA's is blocked.
class Gate {
 public:
  explicit Gate(cudaStream_t stream) : stream_(stream) {
    OPKIT_CUDA_CHECK(cudaHostAlloc(&open_, sizeof(int), cudaHostAllocMapped));
    *open_ = 0;
    int* on_device = nullptr;
    OPKIT_CUDA_CHECK(cudaHostGetDevicePointer(&on_device, open_, 0));
    SpinUntil<<<1, 1, 0, stream>>>(on_device);
    OPKIT_CUDA_CHECK(cudaGetLastError());
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() {
    Open();
    cudaStreamSynchronize(stream_);
    cudaFreeHost(const_cast<int*>(open_));
  }
  void Open() { *const_cast<volatile int*>(open_) = 1; }

 private:
  cudaStream_t stream_;
  int* open_ = nullptr;
};

// float32 on the device.
inline opkit::Tensor ToCuda(const std::vector<float>& values) {
  opkit::Tensor out(kCuda0);
  opkit::Copy(opkit::Tensor::From<float>({static_cast<int64_t>(values.size())}, values), &out);
  return out;
}
inline std::vector<float> ToHost(const opkit::Tensor& tensor) {
  opkit::Tensor host;
  opkit::Copy(tensor, &host);
  return host.ToVector<float>();
}

#endif  // OPKIT_TESTS_BACKENDS_CUDA_DEVICE_CUH_
