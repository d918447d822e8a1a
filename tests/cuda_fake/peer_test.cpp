#include "opkit/backends/cuda/peer.hpp"

#include <doctest/doctest.h>

#include "fake_runtime.hpp"
#include "opkit/backends/cuda/context.hpp"

namespace peer_test {
using namespace opkit;

namespace {
Device Cuda(int index) { return {DeviceType::kCUDA, index}; }
Tensor On(int device) {
  Tensor out(Cuda(device));
  Copy(Tensor::From<float>({2}, {1, 2}), &out);
  return out;
}
std::vector<float> OnHost(const Tensor& tensor) {
  Tensor host;
  Copy(tensor, &host);
  return host.ToVector<float>();
}
}  // namespace

TEST_CASE("a copy between devices that can access each other is direct, and connects both") {
  const Tensor two = On(2);
  Tensor three(Cuda(3));
  const int64_t direct = fake::direct_copies(), staged = fake::staged_copies();
  Copy(two, &three);
  CHECK(fake::direct_copies() == direct + 1);
  CHECK(fake::staged_copies() == staged);
  CHECK(OnHost(three) == std::vector<float>{1, 2});
  CHECK(fake::CanAccess(2, three.raw_data()));
  CHECK(fake::CanAccess(3, two.raw_data()));
  CUDAContext context(Cuda(2));
  Copy(Tensor::From<float>({2}, {3, 4}), &three);
  Tensor back(Cuda(2));
  CopyAsync(context, three, &back);
  context.FinishDeviceComputation();
  CHECK(fake::direct_copies() == direct + 2);
  CHECK(OnHost(back) == std::vector<float>{3, 4});
}

TEST_CASE("a copy between devices that cannot access each other is staged") {
  const Tensor zero = On(0);
  Tensor one(Cuda(1));
  const int64_t direct = fake::direct_copies(), staged = fake::staged_copies();
  Copy(zero, &one);
  CHECK(fake::direct_copies() == direct);
  CHECK(fake::staged_copies() == staged + 1);
  CHECK(OnHost(one) == std::vector<float>{1, 2});
  CHECK(!ConnectCUDADevices(Cuda(0), Cuda(1)));
  CHECK(!fake::CanAccess(1, zero.raw_data()));
}

TEST_CASE("a device is connected by request, in one direction, for pools and cudaMalloc") {
  const Tensor one = On(1), two = On(2);  // device 1 has no pools
  CHECK(!fake::CanAccess(2, one.raw_data()));
  CHECK(ConnectCUDADevices(Cuda(2), Cuda(1)));
  CHECK(fake::CanAccess(2, one.raw_data()));
  CHECK(!fake::CanAccess(1, two.raw_data()));
  CHECK(ConnectCUDADevices(Cuda(1), Cuda(2)));
  CHECK(fake::CanAccess(1, two.raw_data()));
  CHECK(ConnectCUDADevices(Cuda(1), Cuda(2)));
  CHECK(ConnectCUDADevices(Cuda(1), Cuda(1)));
  CHECK_THROWS_WITH_AS(ConnectCUDADevices(Cuda(1), Cuda(4)),
                       doctest::Contains("there is no cuda:4"), Error);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("access that the program enabled before is no error") {
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  REQUIRE(cudaDeviceEnablePeerAccess(3, 0) == cudaSuccess);
  const Tensor three = On(3);
  CHECK(ConnectCUDADevices(Cuda(0), Cuda(3)));
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  CHECK(fake::CanAccess(0, three.raw_data()));
}

TEST_CASE("a pool that is made after its device was connected is accessible, too") {
  detail::CUDAPeers peers;
  REQUIRE(peers.Connect(2, 0));
  cudaMemPool_t pool = nullptr;
  cudaMemPoolProps properties = {};
  properties.location.id = 0;
  REQUIRE(cudaMemPoolCreate(&pool, &properties) == cudaSuccess);
  peers.AddPool(0, pool);
  CUDAStream& stream = CUDAStream::Get(Cuda(0), 0);
  void* data = nullptr;
  REQUIRE(cudaMallocFromPoolAsync(&data, 8, pool, stream.handle()) == cudaSuccess);
  CHECK(fake::CanAccess(2, data));
  CHECK(!fake::CanAccess(3, data));
  REQUIRE(cudaFreeAsync(data, stream.handle()) == cudaSuccess);
  stream.Synchronize();
  REQUIRE(cudaMemPoolDestroy(pool) == cudaSuccess);
}

}  // namespace peer_test
