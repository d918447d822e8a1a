#include "fake_runtime.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr int kDevices = 2;

thread_local bool t_in_callback = false;
thread_local int t_device = 0;
thread_local cudaError_t t_last_error = cudaSuccess;

std::atomic<cudaError_t> g_device_failure{cudaSuccess};
std::atomic<int> g_failures{0};  // calls of FailDevice
thread_local int t_failures = 0;
std::atomic<int64_t> g_stream_waits{0}, g_device_synchronizations{0}, g_host_waits{0};
std::atomic<int64_t> g_callbacks{0}, g_mallocs{0}, g_trims{0}, g_clock{0};
std::atomic<int64_t> g_graph_launches{0}, g_graphs{0};
thread_local std::map<std::string, int64_t> t_calls;
thread_local int t_captures = 0;  // captures that this thread has begun and not ended

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
// Drops this thread's last error if it is older than the latest FailDevice.
void ForgetHealed() {
  if (std::exchange(t_failures, g_failures.load()) != g_failures) t_last_error = cudaSuccess;
}
// Opens every call.
cudaError_t Enter(const char* call) {
  if (t_in_callback) {
    std::fprintf(stderr, "fake CUDA: %s is called from a stream callback\n", call);
    std::abort();
  }
  ++t_calls[call];
  ForgetHealed();
  return Return(g_device_failure.load());
}
#define ENTER() \
  if (const cudaError_t status = Enter(__func__); status != cudaSuccess) return status

// Guards the captures, their streams and the events in them.
std::mutex& capture_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

}  // namespace

// The work of a capture; node i runs after the nodes in `after`.
struct CUgraph_st {
  struct Node {
    std::function<void()> work;
    std::vector<int> after;
  };
  std::vector<Node> nodes;

  // Runs the nodes in an order that the edges allow and that is far from the order of the capture.
  void Run() const {
    std::vector<bool> done(nodes.size());
    for (size_t ran = 0; ran < nodes.size(); ++ran) {
      size_t next = nodes.size();
      while (done[--next] || !IsReady(nodes[next], done)) {
      }
      nodes[next].work();
      done[next] = true;
    }
  }
  static bool IsReady(const Node& node, const std::vector<bool>& done) {
    return std::ranges::all_of(node.after, [&](int i) { return done[static_cast<size_t>(i)]; });
  }
};
struct CUgraphExec_st {
  std::shared_ptr<const CUgraph_st> graph;
};

namespace {
struct Capture {
  explicit Capture(CUstream_st* stream) : origin(stream) {}
  CUstream_st* const origin;
  const std::thread::id thread = std::this_thread::get_id();
  std::shared_ptr<CUgraph_st> graph = std::make_shared<CUgraph_st>();
  std::vector<CUstream_st*> streams;
  bool valid = true;
};
}  // namespace

struct CUstream_st {
  explicit CUstream_st(int on) : device(on) {
    std::thread([this] { Serve(); }).detach();
  }
  // Runs the work in the stream's order or, during a capture, makes a node of it.
  void Issue(std::function<void()> work) {
    {
      std::lock_guard lock(capture_mutex());
      if (capture) {
        capture->graph->nodes.push_back({std::move(work), last});
        last = {static_cast<int>(capture->graph->nodes.size()) - 1};
        return;
      }
    }
    Push(std::move(work));
  }
  // True during a capture, which a call that cannot be captured ends.
  bool Invalidates() {
    std::lock_guard lock(capture_mutex());
    if (capture) capture->valid = false;
    return capture != nullptr;
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
  std::atomic<bool> destroyed{false};
  std::shared_ptr<Capture> capture;  // null: the work runs
  std::vector<int> last;             // the nodes of the capture that the next one runs after
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
  std::shared_ptr<Capture> capture = nullptr;  // the capture in which it was recorded last
  std::vector<int> after = {};                 // the nodes of the capture that it stands for
  // True if the last recording was in a capture, which a query ends.
  bool Invalidates() {
    std::lock_guard lock(capture_mutex());
    if (capture) capture->valid = false;
    return capture != nullptr;
  }
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
// Refuses a call that a capture of the stream does not allow.
#define REFUSE_CAPTURE(stream) \
  if (FIND(stream).Invalidates()) return Return(cudaErrorStreamCaptureUnsupported)
// Refuses a call that may wait for other work, on a thread that captures.
bool InvalidatesOwn();
#define REFUSE_IN_CAPTURE() \
  if (InvalidatesOwn()) return Return(cudaErrorStreamCaptureUnsupported)

struct Captures {
  std::vector<std::shared_ptr<Capture>> all;  // guarded by capture_mutex()
};
Captures& captures() {
  static auto* captures = new Captures;
  return *captures;
}
bool InvalidatesOwn() {
  if (t_captures == 0) return false;
  std::lock_guard lock(capture_mutex());
  for (const auto& capture : captures().all)
    if (capture->thread == std::this_thread::get_id()) capture->valid = false;
  return true;
}

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
  FIND(stream).Issue(std::move(work));
}
void FailDevice(cudaError_t status) {
  g_device_failure = status;
  ++g_failures;
}
void SetLastError(cudaError_t status) {
  ForgetHealed();
  t_last_error = status;
}
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
int64_t graph_launches() { return g_graph_launches; }
int64_t graphs() { return g_graphs; }
int64_t calls(const std::string& name) { return t_calls[name]; }
int64_t calls() {
  int64_t sum = 0;
  for (const auto& [name, count] : t_calls) sum += count;
  return sum;
}
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
  REFUSE_IN_CAPTURE();
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
  CUstream_st& found = FIND(stream);
  std::lock_guard lock(capture_mutex());
  *status = !found.capture         ? cudaStreamCaptureStatusNone
            : found.capture->valid ? cudaStreamCaptureStatusActive
                                   : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  ENTER();
  CUstream_st& found = FIND(stream);
  std::lock_guard lock(capture_mutex());
  if (found.capture) return Return(cudaErrorIllegalState);
  found.capture = std::make_shared<Capture>(&found);
  found.capture->streams.push_back(&found);
  found.last.clear();
  captures().all.push_back(found.capture);
  ++t_captures;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  ENTER();
  CUstream_st& found = FIND(stream);
  std::lock_guard lock(capture_mutex());
  const std::shared_ptr<Capture> capture = found.capture;
  *graph = nullptr;
  if (!capture || capture->origin != &found) return Return(cudaErrorIllegalState);
  if (capture->thread != std::this_thread::get_id())
    return Return(cudaErrorStreamCaptureWrongThread);
  bool joined = true;
  // Every node must come before the end of the origin.
  std::vector<bool> before(capture->graph->nodes.size());
  std::vector<int> next = found.last;
  while (!next.empty()) {
    const auto node = static_cast<size_t>(next.back());
    next.pop_back();
    if (before[node]) continue;
    before[node] = true;
    const auto& after = capture->graph->nodes[node].after;
    next.insert(next.end(), after.begin(), after.end());
  }
  for (const bool reached : before) joined &= reached;
  for (CUstream_st* captured : capture->streams) captured->capture = nullptr;
  std::erase(captures().all, capture);
  --t_captures;
  if (!capture->valid) return Return(cudaErrorStreamCaptureInvalidated);
  if (!joined) return Return(cudaErrorStreamCaptureUnjoined);
  *graph = new CUgraph_st(*capture->graph);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  ENTER();
  *executable = new CUgraphExec_st{std::make_shared<const CUgraph_st>(*graph)};
  ++g_graphs;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  Enter(__func__);
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  Enter(__func__);
  delete executable;  // launches in flight go on
  --g_graphs;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  ENTER();
  REFUSE_CAPTURE(stream);
  ++g_graph_launches;
  FIND(stream).Push([graph = executable->graph] { graph->Run(); });
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  ENTER();
  REFUSE_CAPTURE(stream);
  return FIND(stream).Idle() ? cudaSuccess : Return(cudaErrorNotReady);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  ENTER();
  REFUSE_CAPTURE(stream);
  ++g_host_waits;
  FIND(stream).Drain();
  return Return(g_device_failure.load());
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  ENTER();
  ++g_stream_waits;
  CUstream_st& found = FIND(stream);
  {
    std::lock_guard lock(capture_mutex());
    if (event->capture) {
      if (!event->capture->origin->capture || (found.capture && found.capture != event->capture))
        return Return(cudaErrorInvalidValue);  // another capture, or one that has ended
      if (!found.capture) {                    // the stream joins the capture
        found.capture = event->capture;
        found.last.clear();
        event->capture->streams.push_back(&found);
      }
      found.last.insert(found.last.end(), event->after.begin(), event->after.end());
      return cudaSuccess;
    }
    if (found.capture) {
      found.capture->valid = false;
      return Return(cudaErrorStreamCaptureIsolation);
    }
  }
  if (auto recording = event->Current()) FIND(stream).Push([recording] { recording->Wait(); });
  return cudaSuccess;
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                  unsigned) {
  ENTER();
  REFUSE_CAPTURE(stream);
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
  FIND(stream).Issue([=] { function(data); });  // stands for a kernel, unlike a callback
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
  {
    std::lock_guard lock(capture_mutex());
    event->capture = found.capture;
    event->after = found.last;
    if (found.capture) return cudaSuccess;
  }
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
  if (event->Invalidates()) return Return(cudaErrorCapturedEvent);
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
  if (event->Invalidates()) return Return(cudaErrorCapturedEvent);
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
  REFUSE_CAPTURE(stream);  // CUDA makes a node of it
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
  REFUSE_CAPTURE(stream);  // CUDA frees only what the same graph has allocated
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
  REFUSE_IN_CAPTURE();
  ++g_mallocs;
  *data = AllocateOn(t_device, bytes);
  return *data ? cudaSuccess : Return(cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void* data) {
  ENTER();
  REFUSE_IN_CAPTURE();
  cudaDeviceSynchronize();
  FreeNow(data);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  ENTER();
  REFUSE_IN_CAPTURE();
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  ENTER();
  REFUSE_IN_CAPTURE();
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
  FIND(stream).Issue([=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                size_t bytes, cudaStream_t stream) {
  ENTER();
  if (fake::DeviceOf(to) != to_device || fake::DeviceOf(from) != from_device)
    return Return(cudaErrorInvalidValue);
  FIND(stream).Issue([=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

}  // extern "C"
