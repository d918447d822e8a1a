// ParallelFor over a CUDAContext, and OpResource::parallel_for in a .cu file: launch the loop as a
// kernel on the stream of the context or the call. With the overloads of
// engine/context_parallel_for.hpp the same source runs on the CPU, on its streams and on CUDA.
//
// With OPKIT_CUDA_EMULATION a host compiler makes functions of the loops, which the host calls when
// the stream comes to them. Tests of kernels then need no device, only a CUDA runtime whose device
// memory the host can read, such as that of tests/cuda_fake.
#ifndef OPKIT_BACKENDS_CUDA_PARALLEL_FOR_HPP_
#define OPKIT_BACKENDS_CUDA_PARALLEL_FOR_HPP_

#include <cuda_runtime_api.h>

#include "opkit/backends/cuda/context.hpp"
#include "opkit/engine/context_parallel_for.hpp"
#include "opkit/op/function/op_resource.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

#ifdef OPKIT_DEVICE_COMPILER

namespace detail {

inline constexpr int kCUDABlock = 256;  // threads of a block

// A grid-stride loop: each thread starts at its own number and advances by the number of all
// threads.
template <class F>
__global__ void __launch_bounds__(kCUDABlock) GridStrideLoop(int64_t n, F f) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kCUDABlock;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kCUDABlock + threadIdx.x; i < n; i += step)
    f(i);
}

// Returns the largest number of blocks of a launch, 32 for each multiprocessor: eight are resident
// at once, and four times as many balance blocks of unequal length.
inline int64_t CUDABlockLimit(int device) {
  static auto* limits =
      new std::vector<std::atomic<int64_t>>(static_cast<size_t>(CUDADeviceCount()));
  std::atomic<int64_t>& limit = (*limits)[Index(device)];
  int64_t known = limit.load(std::memory_order_relaxed);  // no other data depends on it
  if (known == 0) {
    int multiprocessors = 0;
    OPKIT_CUDA_CHECK(
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
    known = int64_t{32} * multiprocessors;
    limit.store(known, std::memory_order_relaxed);
  }
  return known;
}

template <class F>
void LaunchLoop(int device, cudaStream_t stream, int64_t n, F f) {
#ifdef __CUDA_ARCH__  // in host code nvcc replaces the lambda by a wrapper type
  static_assert(std::is_trivially_copyable_v<F>,
                "a loop on CUDA: the body is copied to the device byte by byte, so it must be "
                "trivially copyable: capture pointers, numbers and structs of these by value, no "
                "container and no smart pointer");
#endif
  if (n <= 0) return;
  const int64_t wanted = (n - 1) / kCUDABlock + 1;
  const int64_t limit = CUDABlockLimit(device);
  const auto blocks = static_cast<unsigned>(wanted < limit ? wanted : limit);
  GridStrideLoop<<<blocks, kCUDABlock, 0, stream>>>(n, f);
  CheckCUDALaunches();
}

}  // namespace detail

// Issues f(i) for every i in [0, n) and returns; costs a kernel launch. `f` is copied to the
// device, so it must be trivially copyable: an OPKIT_DEVICE lambda that captures pointers and
// numbers by value, not by [&] or [this]. nvcc requires that the lambda stands in a public member
// function or a free function. The grain matters only on the host. Throws the error of the launch.
//
//   ParallelFor(context_, n, [=] OPKIT_DEVICE (int64_t i) { y[i] = scale * x[i]; });
//
// In a .cu file the same lambda on a host context is a compile error, because it would compute
// nothing. A struct with an OPKIT_HOST_DEVICE call operator runs on both.
template <class F>
void ParallelFor(CUDAContext& context, int64_t n, F f, int64_t /*grain*/ = kAutoGrain) {
  detail::LaunchLoop(context.device().index, context.cuda_stream(), n, f);
}

// Issues the body of OpResource::parallel_for, an OPKIT_DEVICE lambda, for a function registered
// for "gpu". Throws kUnsupported if the operator does not run on CUDA.
template <class F>
  requires(__nv_is_extended_device_lambda_closure_type(F))
void IssueDeviceLoop(const OpResource& resource, int64_t n, F f) {
  if (resource.device().type != DeviceType::kCUDA)
    Throw(ErrorCode::kUnsupported, "an OPKIT_DEVICE loop runs on cuda, and this operator on ",
          resource.device());
  detail::LaunchLoop(resource.device().index, resource.stream<CUstream_st>(), n, f);
}

#elif defined(OPKIT_CUDA_EMULATION)

namespace detail {

// Runs `work` on the host, when the stream comes to it; in a recording, whenever that is launched.
template <class F>
void LaunchOnHost(cudaStream_t stream, F work) {
  if (t_cuda_recording) {
    const auto shared = MakeIntrusive<Shared<F>>(std::move(work));
    t_cuda_recording->kept.push_back(shared);
    OPKIT_CUDA_CHECK(cudaLaunchHostFunc(
        stream, [](void* data) { static_cast<Shared<F>*>(data)->value(); }, shared.get()));
    return;
  }
  auto kept = std::make_unique<F>(std::move(work));
  OPKIT_CUDA_CHECK(cudaLaunchHostFunc(
      stream, [](void* data) { (*std::unique_ptr<F>(static_cast<F*>(data)))(); }, kept.get()));
  kept.release();
}
template <class F>
void LaunchLoop(int /*device*/, cudaStream_t stream, int64_t n, F f) {
  static_assert(std::is_trivially_copyable_v<F>);
  if (n <= 0) return;
  LaunchOnHost(stream, [n, f] {
    for (int64_t i = 0; i < n; ++i) f(i);
  });
}

}  // namespace detail

template <class F>
void ParallelFor(CUDAContext& context, int64_t n, F f, int64_t /*grain*/ = kAutoGrain) {
  detail::LaunchLoop(context.device().index, context.cuda_stream(), n, f);
}

#else

template <class F>
void ParallelFor(CUDAContext&, int64_t, F, int64_t = kAutoGrain) {
  static_assert(
      sizeof(F) == 0,
      "ParallelFor on a CUDAContext launches a kernel: compile this file with nvcc (.cu)");
}

#endif  // OPKIT_DEVICE_COMPILER

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_PARALLEL_FOR_HPP_
