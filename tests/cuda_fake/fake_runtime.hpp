// A CUDA runtime made of threads: four devices, each stream a thread that runs its queue in order,
// device memory on the heap. A block that is freed on a stream is given out again on that stream at
// once, as CUDA's pools do. Device 1 has no pools. Strict where CUDA only warns: a call from a
// stream callback, or with a stream that was destroyed, aborts; every call that may make a context
// makes one on the thread's device. A capture records what is issued on its streams; a call that
// CUDA does not capture invalidates it, and so do allocations and frees, which CUDA captures.
#ifndef OPKIT_TESTS_CUDA_FAKE_FAKE_RUNTIME_HPP_
#define OPKIT_TESTS_CUDA_FAKE_FAKE_RUNTIME_HPP_

#include <cuda_runtime_api.h>

#include <atomic>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace fake {

inline constexpr int kDevices = 4;

// While it lives, streams have no threads: they advance in an order drawn from the seed, a little
// at each call of CUDA by the thread that made the schedule, and as far as needed when a call
// waits. Some streams advance only then. All calls come from that thread, and from threads that
// work only during `settle`, which the schedule calls after callbacks. A wait on the host that CUDA
// does not see (a condition variable) would never end: query instead.
class Schedule {
 public:
  // `fail_in_256`: how many of 256 allocations find no memory.
  Schedule(uint64_t seed, unsigned fail_in_256, std::function<void()> settle);
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;
  ~Schedule();  // runs all work

  void Advance();  // a little, callbacks too
  void RunAll();
};

// Runs on the stream, as a kernel would.
void Enqueue(cudaStream_t stream, std::function<void()> work);

// Holds a stream up until it is opened; opens by itself at the end.
class Gate {
 public:
  explicit Gate(cudaStream_t stream) {
    Enqueue(stream, [open = open_] { open->wait(); });
  }
  ~Gate() { Open(); }
  void Open() {
    if (!opened_) open_->count_down();
    opened_ = true;
  }

 private:
  std::shared_ptr<std::latch> open_ = std::make_shared<std::latch>(1);
  bool opened_ = false;
};

// A kernel failed: every call and callback gets the status from now on; cudaSuccess heals it.
void FailDevice(cudaError_t status);
// As a launch without a check leaves it behind.
void SetLastError(cudaError_t status);
// ns on the devices' clock, which stands still otherwise.
void SetClock(int64_t ns);
// As cudaStreamDestroy, and then cudaStreamCreate that returns the same handle.
void SetDestroyed(cudaStream_t stream, bool destroyed);
// As in a new process, and the devices that have a context.
void ForgetContexts();
std::vector<int> Contexts();
// The result of cudaDeviceCanAccessPeer: true except between 0 and 1, and 1 and 3.
bool CanReach(int device, int peer);
// Returns true if kernels of the device may access the address: it is memory of the device, or of a
// peer to which access was enabled. CUDA ends other kernels.
bool CanAccess(int device, const void* data);
// For a kernel: as CanAccess, and counts what must not be accessed, as copies do.
bool Use(int device, const void* data);
int64_t bad_accesses();
// Bytes that a device has; what is asked for beyond them is "out of memory".
void LimitMemory(int64_t bytes);

int DeviceOf(const void* data);     // of an address in a block; -1: no, or no longer, device memory
int64_t stream_waits();             // cudaStreamWaitEvent calls
int64_t callbacks();                // cudaStreamAddCallback calls
int64_t device_synchronizations();  // cudaDeviceSynchronize calls
int64_t host_waits();               // cudaStreamSynchronize and cudaEventSynchronize calls
int64_t mallocs();                  // cudaMalloc calls
int64_t pool_trims();
int64_t graph_launches();                // cudaGraphLaunch calls
int64_t graphs();                        // executable graphs that exist
int64_t calls();                         // all calls of this thread
int64_t calls(const std::string& name);  // those of one function
int64_t direct_copies();                 // between devices, and those staged through the host
int64_t staged_copies();

// Waits until other threads make the condition true. There is no deadline here: ctest has one.
template <class Condition>
void Await(Condition condition) {
  while (!condition()) std::this_thread::yield();
}

}  // namespace fake

#endif  // OPKIT_TESTS_CUDA_FAKE_FAKE_RUNTIME_HPP_
