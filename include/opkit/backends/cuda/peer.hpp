// ConnectCUDADevices: lets a device access the memory of another one, so that copies between them
// are direct and kernels may read across. Copies call it when a tensor first crosses.
#ifndef OPKIT_BACKENDS_CUDA_PEER_HPP_
#define OPKIT_BACKENDS_CUDA_PEER_HPP_

#include <cuda_runtime_api.h>

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "opkit/backends/cuda/device.hpp"
#include "opkit/base/index.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Which devices access each other's memory, and the pools whose memory they access. Thread-safe.
class CUDAPeers {
 public:
  static CUDAPeers& Global() {
    static auto* peers = new CUDAPeers;
    return *peers;
  }

  // Costs a load after the first call of a pair.
  bool Connect(int device, int peer) {
    std::atomic<State>& state = StateOf(device, peer);
    // Acquire: the thread that sees kConnected uses what Enable has made accessible.
    State known = state.load(std::memory_order_acquire);
    if (known == State::kUnknown) [[unlikely]] {
      std::lock_guard lock(mutex_);
      known = state.load(std::memory_order_relaxed);  // the lock orders it
      if (known == State::kUnknown) {
        known = Enable(device, peer) ? State::kConnected : State::kApart;
        state.store(known, std::memory_order_release);
      }
    }
    return known == State::kConnected;
  }
  // Adds a pool of a device. Devices that are connected with this device access its memory, too.
  void AddPool(int device, cudaMemPool_t pool) {
    std::lock_guard lock(mutex_);
    for (int other = 0; other < CUDADeviceCount(); ++other)
      if (StateOf(other, device).load(std::memory_order_relaxed) == State::kConnected)
        GiveAccess(pool, other);
    pools_.emplace_back(device, pool);
  }

 private:
  enum class State : uint8_t { kUnknown, kApart, kConnected };

  std::atomic<State>& StateOf(int device, int peer) {
    return states_[Index(device) * Index(CUDADeviceCount()) + Index(peer)];
  }
  // Returns false if the hardware, or CUDA's limit of peers, does not allow the access.
  bool Enable(int device, int peer) {
    int can = 0;
    OPKIT_CUDA_CHECK(cudaDeviceCanAccessPeer(&can, device, peer));
    if (!can) return false;
    {
      const CUDADeviceGuard guard(device);
      const cudaError_t status = cudaDeviceEnablePeerAccess(peer, 0);
      if (status == cudaErrorPeerAccessAlreadyEnabled || status == cudaErrorTooManyPeers)
        cudaGetLastError();
      else
        OPKIT_CUDA_CHECK(status);
      if (status == cudaErrorTooManyPeers) return false;
    }
    for (const auto& [owner, pool] : pools_)
      if (owner == peer) GiveAccess(pool, device);
    return true;
  }
  static void GiveAccess(cudaMemPool_t pool, int device) {
    cudaMemAccessDesc access = {};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = device;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    OPKIT_CUDA_CHECK(cudaMemPoolSetAccess(pool, &access, 1));
  }

  std::mutex mutex_;
  std::vector<std::atomic<State>> states_ =
      std::vector<std::atomic<State>>(Index(CUDADeviceCount()) * Index(CUDADeviceCount()));
  std::vector<std::pair<int, cudaMemPool_t>> pools_;  // with their devices
};

}  // namespace detail

// Lets kernels on `device` read and write the memory of `peer`: of opkit's allocator and of
// cudaMalloc. Returns false if this hardware does not allow it; copies between the two are then
// staged through the host. Throws the errors of CheckCUDADevice and of CUDA. Thread-safe.
inline bool ConnectCUDADevices(Device device, Device peer) {
  CheckCUDADevice(device);
  CheckCUDADevice(peer);
  return device == peer || detail::CUDAPeers::Global().Connect(device.index, peer.index);
}

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_PEER_HPP_
