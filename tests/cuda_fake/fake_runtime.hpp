// A CUDA runtime made of threads: two devices, each stream a thread that runs its queue in order,
// device memory on the heap. A block that is freed on a stream is given out again on that stream at
// once, as CUDA's pools do. Strict where CUDA only warns: a call from a stream callback, or with a
// stream that was destroyed, aborts. A capture records what is issued on its streams; a call that
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

namespace fake {

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

// Waits until other threads make the condition true. There is no deadline here: ctest has one.
template <class Condition>
void Await(Condition condition) {
  while (!condition()) std::this_thread::yield();
}

}  // namespace fake

#endif  // OPKIT_TESTS_CUDA_FAKE_FAKE_RUNTIME_HPP_
