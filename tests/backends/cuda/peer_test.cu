#include "opkit/backends/cuda/peer.hpp"

#include "device.cuh"

namespace peer_test {
using namespace opkit;

// A kernel of the context that reads memory of another device.
static void AddOne(CUDAContext& context, const Tensor& from, Tensor& to) {
  const auto* x = static_cast<const float*>(from.raw_data());
  auto* y = static_cast<float*>(to.raw_mutable_data());
  ParallelFor(context, from.numel(), [=] OPKIT_DEVICE(int64_t i) { y[i] = x[i] + 1; });
}

TEST_CASE("tensors cross between two GPUs, and a kernel reads the peer's memory if it may") {
  if (CUDADeviceCount() < 2) {
    MESSAGE("skipped: fewer than two CUDA devices");
    return;
  }
  const Device second{DeviceType::kCUDA, 1};
  const Tensor x = ToCuda({1, 2, 3});
  Tensor y(second);
  Copy(x, &y);
  CHECK(ToHost(y) == std::vector<float>{1, 2, 3});
  if (!ConnectCUDADevices(second, kCuda0)) return;
  CUDAContext context(second);
  AddOne(context, x, y);
  context.FinishDeviceComputation();
  CHECK(ToHost(y) == std::vector<float>{2, 3, 4});
}

}  // namespace peer_test
