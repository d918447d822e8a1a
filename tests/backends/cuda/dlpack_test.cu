#include "opkit/backends/cuda/dlpack.hpp"

#include "device.cuh"

namespace dlpack_test {
using namespace opkit;

TEST_CASE("a tensor goes to another library's stream and back, and the host waits for nothing") {
  NEEDS_CUDA_DEVICE();
  CUDAContext context(kCuda0);
  context.SwitchToDevice(0);
  Tensor x = ToCuda({1, 2, 3});
  cudaStream_t theirs = nullptr;
  OPKIT_CUDA_CHECK(cudaStreamCreateWithFlags(&theirs, cudaStreamNonBlocking));
  Gate gate(context.cuda_stream());
  auto* const values = static_cast<float*>(x.raw_mutable_data());
  ParallelFor(context, 3, [=] OPKIT_DEVICE(int64_t i) { values[i] *= 10; });
  auto* managed = ToDLPackOnStream(x, theirs);
  CUDAContext other(kCuda0);
  {
    const CUDAStreamScope scope(kCuda0, theirs);
    ParallelFor(other, 3, [=] OPKIT_DEVICE(int64_t i) { values[i] += 1; });
  }
  x = Tensor();
  Tensor back = FromDLPackOnStream(managed, theirs);
  gate.Open();
  CHECK(ToHost(back) == std::vector<float>{11, 21, 31});
  back = Tensor();
  context.FinishDeviceComputation();
  OPKIT_CUDA_CHECK(cudaStreamSynchronize(theirs));
  detail::CUDACompletions::Global().WaitUntilIdle();
  OPKIT_CUDA_CHECK(cudaStreamDestroy(theirs));
}

}  // namespace dlpack_test
