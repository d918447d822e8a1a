#include "fake_runtime.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

namespace {

constexpr int kDevices = 2;

thread_local bool t_in_callback = false;
thread_local int t_device = 0;
thread_local cudaError_t t_last_error = cudaSuccess;

std::atomic<cudaError_t> g_device_failure{cudaSuccess};
std::atomic<int64_t> g_stream_waits{0}, g_device_synchronizations{0}, g_host_waits{0};
std::atomic<int64_t> g_callbacks{0}, g_mallocs{0}, g_trims{0}, g_clock{0};

struct Memory {
  struct Block {
    int device;
    size_t bytes;
  };
  std::mutex mutex;
  std::map<const void*, Block> blocks;
  int64_t limit = int64_t{1} << 40;
  int64_t used = 0;
};
Memory& memory() {
  static auto* memory = new Memory;
  return *memory;
}
std::mutex& callback_mutex() {  // CUDA may run them one by one
  static auto* mutex = new std::mutex;
  return *mutex;
}

struct Pending {  // a block that is freed once its stream has come there
  void* data;
  size_t bytes;
  cudaStream_t stream;
  std::shared_ptr<std::atomic<bool>> reused;
};
struct PendingFrees {
  std::mutex mutex;
  std::deque<Pending> all;
};
PendingFrees& pending_frees() {
  static auto* frees = new PendingFrees;
  return *frees;
}

// One recording of an event.
struct Recording {
  std::mutex mutex;
  std::condition_variable reached;
  bool done = false;
  int64_t at = 0;
  void Reach() {
    std::lock_guard lock(mutex);
    done = true;
    at = g_clock;
    reached.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex);
    reached.wait(lock, [&] { return done; });
  }
  bool Done() {
    std::lock_guard lock(mutex);
    return done;
  }
};

cudaError_t Return(cudaError_t status) {
  if (status != cudaSuccess) t_last_error = status;
  return status;
}
// Opens every call.
cudaError_t Enter(const char* call) {
  if (t_in_callback) {
    std::fprintf(stderr, "fake CUDA: %s is called from a stream callback\n", call);
    std::abort();
  }
  return Return(g_device_failure.load());
}
#define ENTER() \
  if (const cudaError_t status = Enter(__func__); status != cudaSuccess) return status

}  // namespace

struct CUstream_st {
  explicit CUstream_st(int on) : device(on) {
    std::thread([this] { Serve(); }).detach();
  }
  void Push(std::function<void()> work) {
    std::lock_guard lock(mutex);
    queue.push_back(std::move(work));
    changed.notify_all();
  }
  bool Idle() {
    std::lock_guard lock(mutex);
    return queue.empty() && !busy;
  }
  void Drain() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return queue.empty() && !busy; });
  }
  void Serve() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return !queue.empty(); });
      auto work = std::move(queue.front());
      queue.pop_front();
      busy = true;
      lock.unlock();
      work();
      work = nullptr;
      lock.lock();
      busy = false;
      changed.notify_all();
    }
  }
  const int device;
  std::atomic<bool> destroyed{false}, capturing{false};
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  bool busy = false;
};
struct CUevent_st {
  int device;
  bool timed;
  std::mutex mutex;
  std::shared_ptr<Recording> recording;
  std::shared_ptr<Recording> Current() {
    std::lock_guard lock(mutex);
    return recording;
  }
};
struct CUmemPoolHandle_st {
  int device;
};

namespace {
struct Streams {
  std::mutex mutex;
  std::deque<std::unique_ptr<CUstream_st>> all;
};
Streams& streams() {
  static auto* streams = new Streams;
  return *streams;
}
// Resolves a handle: null and cudaStreamLegacy mean the current device's default stream.
CUstream_st& Find(cudaStream_t handle, const char* call) {
  if (handle && handle != cudaStreamLegacy) {
    if (handle->destroyed) {
      std::fprintf(stderr, "fake CUDA: %s on a stream that was destroyed\n", call);
      std::abort();
    }
    return *handle;
  }
  static CUstream_st* defaults[kDevices] = {new CUstream_st(0), new CUstream_st(1)};
  return *defaults[t_device];
}
#define FIND(stream) Find(stream, __func__)

void* AllocateOn(int device, size_t bytes) {
  Memory& all = memory();
  std::lock_guard lock(all.mutex);
  if (all.used + static_cast<int64_t>(bytes) > all.limit) return nullptr;
  void* data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  all.blocks[data] = {device, bytes};
  all.used += static_cast<int64_t>(bytes);
  return data;
}
void FreeNow(void* data) {
  Memory& all = memory();
  std::lock_guard lock(all.mutex);
  const auto found = all.blocks.find(data);
  if (found == all.blocks.end()) {
    std::fprintf(stderr, "fake CUDA: frees what is not allocated\n");
    std::abort();
  }
  all.used -= static_cast<int64_t>(found->second.bytes);
  all.blocks.erase(found);
  std::free(data);
}
}  // namespace

namespace fake {
void Enqueue(cudaStream_t stream, std::function<void()> work) {
  FIND(stream).Push(std::move(work));
}
void SetCapturing(cudaStream_t stream, bool capturing) { FIND(stream).capturing = capturing; }
void FailDevice(cudaError_t status) {
  g_device_failure = status;
  t_last_error = cudaSuccess;
}
void SetLastError(cudaError_t status) { t_last_error = status; }
void SetClock(int64_t ns) { g_clock = ns; }
void LimitMemory(int64_t bytes) {
  std::lock_guard lock(memory().mutex);
  memory().limit = bytes;
}
int DeviceOf(const void* data) {
  std::lock_guard lock(memory().mutex);
  auto after = memory().blocks.upper_bound(data);
  if (after == memory().blocks.begin()) return -1;
  const auto& [begin, block] = *--after;
  const auto offset =
      static_cast<size_t>(static_cast<const char*>(data) - static_cast<const char*>(begin));
  return offset < std::max<size_t>(block.bytes, 1) ? block.device : -1;
}
int64_t stream_waits() { return g_stream_waits; }
int64_t callbacks() { return g_callbacks; }
int64_t device_synchronizations() { return g_device_synchronizations; }
int64_t host_waits() { return g_host_waits; }
int64_t mallocs() { return g_mallocs; }
int64_t pool_trims() { return g_trims; }
}  // namespace fake

extern "C" {

const char* cudaGetErrorName(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    default:
      return "cudaErrorFake";
  }
}
const char* cudaGetErrorString(cudaError_t status) {
  return status == cudaErrorIllegalAddress ? "an illegal memory access was encountered" : "a fake";
}
cudaError_t cudaGetLastError() {
  Enter(__func__);
  return std::exchange(t_last_error, g_device_failure.load());
}
cudaError_t cudaPeekAtLastError() {
  Enter(__func__);
  return t_last_error;
}
cudaError_t cudaGetDeviceCount(int* count) {
  ENTER();
  *count = kDevices;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  ENTER();
  *device = t_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  ENTER();
  if (device < 0 || device >= kDevices) return Return(cudaErrorInvalidDevice);
  t_device = device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  ENTER();
  // The second device has no pools.
  *value = attribute == cudaDevAttrMemoryPoolsSupported ? device == 0 : 4;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  ENTER();
  ++g_device_synchronizations;
  std::deque<CUstream_st*> mine;
  {
    std::lock_guard lock(streams().mutex);
    for (const auto& stream : streams().all)
      if (stream->device == t_device) mine.push_back(stream.get());
  }
  for (CUstream_st* stream : mine) stream->Drain();
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  ENTER();
  std::lock_guard lock(streams().mutex);
  *stream = streams().all.emplace_back(std::make_unique<CUstream_st>(t_device)).get();
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  ENTER();
  FIND(stream).destroyed = true;  // what was issued still runs
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  ENTER();
  *status = FIND(stream).capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  ENTER();
  return FIND(stream).Idle() ? cudaSuccess : Return(cudaErrorNotReady);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  ENTER();
  ++g_host_waits;
  FIND(stream).Drain();
  return Return(g_device_failure.load());
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  ENTER();
  ++g_stream_waits;
  if (auto recording = event->Current()) FIND(stream).Push([recording] { recording->Wait(); });
  return cudaSuccess;
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                  unsigned) {
  ENTER();
  ++g_callbacks;
  FIND(stream).Push([=] {
    std::lock_guard lock(callback_mutex());
    t_in_callback = true;
    callback(stream, g_device_failure.load(), data);
    t_in_callback = false;
  });
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  ENTER();
  FIND(stream).Push([=] { function(data); });  // stands for a kernel, unlike a callback
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  ENTER();
  *event = new CUevent_st{t_device, (flags & cudaEventDisableTiming) == 0, {}, {}};
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  ENTER();
  CUstream_st& found = FIND(stream);
  if (event->device != found.device) return Return(cudaErrorInvalidResourceHandle);
  auto recording = std::make_shared<Recording>();
  {
    std::lock_guard lock(event->mutex);
    event->recording = recording;
  }
  found.Push([recording] { recording->Reach(); });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  ENTER();
  const auto recording = event->Current();
  return !recording || recording->Done() ? cudaSuccess : Return(cudaErrorNotReady);
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  ENTER();
  const auto begin = from->Current(), end = to->Current();
  if (!begin || !end || !from->timed || !to->timed) return Return(cudaErrorInvalidResourceHandle);
  if (!begin->Done() || !end->Done()) return Return(cudaErrorNotReady);
  *ms = static_cast<float>(end->at - begin->at) / 1e6f;
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ENTER();
  ++g_host_waits;
  if (const auto recording = event->Current()) recording->Wait();
  return cudaSuccess;
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  ENTER();
  *pool = new CUmemPoolHandle_st{properties->location.id};
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  ENTER();
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) {
  ENTER();
  ++g_trims;
  return cudaSuccess;
}
cudaError_t cudaMallocFromPoolAsync(void** data, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  ENTER();
  CUstream_st& found = FIND(stream);
  if (found.device != pool->device) return Return(cudaErrorInvalidValue);
  {
    // As CUDA does, takes a block that work issued on this stream before may still use.
    std::lock_guard lock(pending_frees().mutex);
    auto& all = pending_frees().all;
    for (auto at = all.begin(); at != all.end(); ++at)
      if (at->stream == &found && at->bytes >= bytes && !at->reused->exchange(true)) {
        *data = at->data;
        all.erase(at);
        return cudaSuccess;
      }
  }
  *data = AllocateOn(pool->device, bytes);
  return *data ? cudaSuccess : Return(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  ENTER();
  CUstream_st& found = FIND(stream);
  size_t bytes = 0;
  {
    std::lock_guard lock(memory().mutex);
    bytes = memory().blocks.at(data).bytes;
  }
  const auto reused = std::make_shared<std::atomic<bool>>(false);
  {
    std::lock_guard lock(pending_frees().mutex);
    pending_frees().all.push_back({data, bytes, &found, reused});
  }
  found.Push([data, reused] {
    if (reused->exchange(true)) return;
    {
      std::lock_guard lock(pending_frees().mutex);
      std::erase_if(pending_frees().all,
                    [&](const Pending& free) { return free.reused == reused; });
    }
    FreeNow(data);
  });
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, size_t bytes) {
  ENTER();
  ++g_mallocs;
  *data = AllocateOn(t_device, bytes);
  return *data ? cudaSuccess : Return(cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void* data) {
  ENTER();
  cudaDeviceSynchronize();
  FreeNow(data);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  ENTER();
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  ENTER();
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  ENTER();
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (to_device != (fake::DeviceOf(to) >= 0) || from_device != (fake::DeviceOf(from) >= 0))
    return Return(cudaErrorInvalidValue);
  FIND(stream).Push([=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                size_t bytes, cudaStream_t stream) {
  ENTER();
  if (fake::DeviceOf(to) != to_device || fake::DeviceOf(from) != from_device)
    return Return(cudaErrorInvalidValue);
  FIND(stream).Push([=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

}  // extern "C"
