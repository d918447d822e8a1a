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

constexpr int kDevices = fake::kDevices;

thread_local bool t_in_callback = false;
thread_local bool t_draws = false;  // calls of this thread let scheduled streams advance
thread_local int t_device = 0;
thread_local cudaError_t t_last_error = cudaSuccess;

std::atomic<cudaError_t> g_device_failure{cudaSuccess};
std::atomic<int> g_failures{0};  // calls of FailDevice
thread_local int t_failures = 0;
std::atomic<int64_t> g_stream_waits{0}, g_device_synchronizations{0}, g_host_waits{0};
std::atomic<int64_t> g_callbacks{0}, g_mallocs{0}, g_trims{0}, g_clock{0};
std::atomic<int64_t> g_graph_launches{0}, g_graphs{0};
thread_local std::map<const char*, int64_t> t_calls;  // by __func__
thread_local int t_captures = 0;  // captures that this thread has begun and not ended
std::atomic<int64_t> g_direct_copies{0}, g_staged_copies{0}, g_bad_accesses{0};
std::atomic<bool> g_contexts[kDevices];
std::atomic<bool> g_peers[kDevices][kDevices];  // [device][the peer whose memory it accesses]
std::atomic<bool> g_scheduled{false};           // a fake::Schedule lives

[[noreturn]] void Fail(const char* format, const char* call) {
  std::fprintf(stderr, format, call);
  std::abort();
}

struct Memory {
  struct Block {
    int device;
    size_t bytes;
    const CUmemPoolHandle_st* pool;  // null: of cudaMalloc
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
void AdvanceABit();
// After a callback: lets the threads behind it end, so that the order of all calls follows from the
// seed.
void Settle();
// Opens every call.
cudaError_t Enter(const char* call) {
  if (t_in_callback) Fail("fake CUDA: %s is called from a stream callback\n", call);
  ++t_calls[call];
  ForgetHealed();
  return Return(g_device_failure.load());
}
// Opens every call that needs a context, and so makes one on the thread's device.
cudaError_t EnterContext(const char* call) {
  const cudaError_t status = Enter(call);
  g_contexts[t_device] = true;
  return status;
}
#define ENTER() \
  if (const cudaError_t status = Enter(__func__); status != cudaSuccess) return status
#define ENTER_CONTEXT() \
  if (const cudaError_t status = EnterContext(__func__); status != cudaSuccess) return status
// Opens every call about a stream, by which streams of a schedule advance. Other calls do not
// count: opkit makes them once in a process, and a program must have the same order again alone.
#define ENTER_STREAM() \
  ENTER_CONTEXT();     \
  if (t_draws) AdvanceABit()

// Work of a stream.
struct Item {
  std::function<void()> run;
  std::shared_ptr<Recording> after;  // a recording that must be reached first; may be null
  bool is_callback = false;
};

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
  explicit CUstream_st(int on) : device(on) {}
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
  void Push(std::function<void()> work) { Push(Item{std::move(work), nullptr}); }
  void Push(Item item);
  bool Idle() {
    std::lock_guard lock(mutex);
    return queue.empty() && !busy;
  }
  void Drain();
  // The thread of the stream.
  void Serve() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return !queue.empty() && !g_scheduled; });
      Item item = Take();
      lock.unlock();
      if (item.after) item.after->Wait();
      item.run();
      item = {};
      lock.lock();
      busy = false;
      changed.notify_all();
    }
  }
  Item Take() {
    Item item = std::move(queue.front());
    queue.pop_front();
    busy = true;
    return item;
  }
  // Runs the first item, for a schedule. Returns false if there is none, or it cannot run yet.
  bool RunFirst(bool callbacks) {
    Item item;
    {
      std::lock_guard lock(mutex);
      if (busy || queue.empty()) return false;
      const Item& first = queue.front();
      if ((first.after && !first.after->Done()) || (first.is_callback && !callbacks)) return false;
      item = Take();
    }
    item.run();
    {
      std::lock_guard lock(mutex);
      busy = false;
      changed.notify_all();
    }
    if (item.is_callback) Settle();
    return true;
  }
  bool WaitsForCallback() {
    std::lock_guard lock(mutex);
    return !busy && !queue.empty() && queue.front().is_callback;
  }
  const int device;
  std::atomic<bool> destroyed{false};
  std::shared_ptr<Capture> capture;  // null: the work runs
  std::vector<int> last;             // the nodes of the capture that the next one runs after
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Item> queue;
  bool busy = false;
  bool has_thread = false;
  bool is_numbered = false;  // in the list of the schedule
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
  std::atomic<bool> accessible[fake::kDevices] = {};  // to other devices
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
    if (handle->destroyed) Fail("fake CUDA: %s on a stream that was destroyed\n", call);
    return *handle;
  }
  static CUstream_st* defaults[kDevices] = {new CUstream_st(0), new CUstream_st(1),
                                            new CUstream_st(2), new CUstream_st(3)};
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

// The state of the living fake::Schedule.
struct Scheduler {
  std::mutex mutex;
  std::vector<CUstream_st*> streams;  // in the order of their first work
  uint64_t random = 0;
  uint64_t late = 0;            // bit i: stream i advances only when a call waits
  unsigned advance_in_256 = 0;  // how probably a call lets a stream advance
  unsigned fail_in_256 = 0;     // how probably an allocation finds no memory
  std::function<void()> settle;

  uint64_t Draw() {  // splitmix64
    random += 0x9e3779b97f4a7c15;
    uint64_t z = random;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  bool DrawIn256(unsigned chances) {
    std::lock_guard lock(mutex);
    return Draw() % 256 < chances;
  }
  // Lets one stream advance by one item. `late_too`: also the late ones. Returns false if none can.
  bool Step(bool callbacks, bool late_too) {
    size_t begin = 0, n = 0;
    uint64_t skipped = 0;
    {
      std::lock_guard lock(mutex);
      n = streams.size();
      if (n == 0) return false;
      begin = Draw() % n;
      if (!late_too && Draw() % 16 != 0) skipped = late;
    }
    for (size_t i = 0; i < n; ++i) {
      const size_t at = (begin + i) % n;
      if (skipped >> (at % 64) & 1) continue;
      CUstream_st* stream = nullptr;
      {
        std::lock_guard lock(mutex);
        stream = streams[at];
      }
      if (stream->RunFirst(callbacks)) return true;
    }
    return false;
  }
  // Runs streams until the condition holds.
  template <class Condition>
  void RunUntil(Condition condition, CUstream_st* wanted, bool callbacks) {
    while (!condition()) {
      if (wanted && DrawIn256(192) && wanted->RunFirst(callbacks)) continue;
      if (Step(callbacks, /*late_too=*/true)) continue;
      // Another thread runs an item, or only callbacks are left, which this thread may not run.
      if (!callbacks && wanted && wanted->WaitsForCallback()) return;
      std::this_thread::yield();
    }
  }
};
Scheduler& scheduler() {
  static auto* scheduler = new Scheduler;
  return *scheduler;
}
void AdvanceABit() {
  while (scheduler().DrawIn256(scheduler().advance_in_256))
    if (!scheduler().Step(/*callbacks=*/false, /*late_too=*/false)) return;
}
void Settle() {
  if (t_draws && scheduler().settle) scheduler().settle();
}
bool IsOutOfMemory() { return t_draws && scheduler().DrawIn256(scheduler().fail_in_256); }
// Returns the block that contains the address, or null. The memory's mutex must be held.
const Memory::Block* FindBlock(const void* data) {
  auto after = memory().blocks.upper_bound(data);
  if (after == memory().blocks.begin()) return nullptr;
  const auto& [begin, block] = *--after;
  const auto offset =
      static_cast<size_t>(static_cast<const char*>(data) - static_cast<const char*>(begin));
  return offset < std::max<size_t>(block.bytes, 1) ? &block : nullptr;
}

void* AllocateOn(int device, size_t bytes, const CUmemPoolHandle_st* pool = nullptr) {
  Memory& all = memory();
  std::lock_guard lock(all.mutex);
  if (all.used + static_cast<int64_t>(bytes) > all.limit) return nullptr;
  void* data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  all.blocks[data] = {device, bytes, pool};
  all.used += static_cast<int64_t>(bytes);
  return data;
}
void FreeNow(void* data) {
  Memory& all = memory();
  std::lock_guard lock(all.mutex);
  const auto found = all.blocks.find(data);
  if (found == all.blocks.end()) Fail("fake CUDA: %s of what is not allocated\n", "a free");
  std::memset(data, 0xdb, found->second.bytes);
  all.used -= static_cast<int64_t>(found->second.bytes);
  all.blocks.erase(found);
  std::free(data);
}
// Copies unless memory of a device has been freed, which it notes.
void RunCopy(void* to, bool to_device, const void* from, bool from_device, size_t bytes) {
  if ((to_device && fake::DeviceOf(to) < 0) || (from_device && fake::DeviceOf(from) < 0))
    ++g_bad_accesses;
  else
    std::memcpy(to, from, bytes);
}
}  // namespace

void CUstream_st::Push(Item item) {
  if (g_scheduled) {
    std::lock_guard lock(scheduler().mutex);
    if (!std::exchange(is_numbered, true)) scheduler().streams.push_back(this);
  }
  std::lock_guard lock(mutex);
  queue.push_back(std::move(item));
  if (!g_scheduled && !std::exchange(has_thread, true)) std::thread([this] { Serve(); }).detach();
  changed.notify_all();
}
void CUstream_st::Drain() {
  if (g_scheduled) return scheduler().RunUntil([&] { return Idle(); }, this, t_draws);
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return queue.empty() && !busy; });
}

namespace fake {
Schedule::Schedule(uint64_t seed, unsigned fail_in_256, std::function<void()> settle) {
  Scheduler& all = scheduler();
  all.random = seed;
  // A program whose streams never advance by themselves, always, and in between.
  constexpr unsigned kAdvance[] = {0, 8, 32, 96, 200};
  all.advance_in_256 = kAdvance[all.Draw() % std::size(kAdvance)];
  all.late = all.Draw() & all.Draw();  // a quarter of the streams
  all.fail_in_256 = fail_in_256;
  all.settle = std::move(settle);
  t_draws = true;
  g_scheduled = true;
}
Schedule::~Schedule() {
  RunAll();
  Scheduler& all = scheduler();
  for (CUstream_st* stream : all.streams) stream->is_numbered = false;
  all.streams.clear();
  all.settle = nullptr;
  t_draws = false;
  g_scheduled = false;
}
void Schedule::Advance() {
  Scheduler& all = scheduler();
  while (all.DrawIn256(all.advance_in_256))
    if (!all.Step(/*callbacks=*/true, /*late_too=*/false)) break;
}
void Schedule::RunAll() {
  Scheduler& all = scheduler();
  const auto idle = [&] {
    std::lock_guard lock(all.mutex);
    for (CUstream_st* stream : all.streams)
      if (!stream->Idle()) return false;
    return true;
  };
  all.RunUntil(idle, nullptr, /*callbacks=*/true);
}
void Enqueue(cudaStream_t stream, std::function<void()> work) {
  FIND(stream).Issue(std::move(work));
}
void SetDestroyed(cudaStream_t stream, bool destroyed) { stream->destroyed = destroyed; }
void ForgetContexts() {
  for (auto& context : g_contexts) context = false;
}
std::vector<int> Contexts() {
  std::vector<int> found;
  for (int device = 0; device < kDevices; ++device)
    if (g_contexts[device]) found.push_back(device);
  return found;
}
bool CanReach(int device, int peer) {
  const int low = std::min(device, peer), high = std::max(device, peer);
  return low != high && !(low == 0 && high == 1) && !(low == 1 && high == 3);
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
  const Memory::Block* const block = FindBlock(data);
  return block ? block->device : -1;
}
bool Use(int device, const void* data) {
  const bool can = CanAccess(device, data);
  if (!can) ++g_bad_accesses;
  return can;
}
bool CanAccess(int device, const void* data) {
  std::lock_guard lock(memory().mutex);
  const Memory::Block* const block = FindBlock(data);
  if (!block || block->device == device) return block;
  return block->pool ? block->pool->accessible[device] : g_peers[device][block->device];
}
int64_t stream_waits() { return g_stream_waits; }
int64_t callbacks() { return g_callbacks; }
int64_t device_synchronizations() { return g_device_synchronizations; }
int64_t host_waits() { return g_host_waits; }
int64_t mallocs() { return g_mallocs; }
int64_t pool_trims() { return g_trims; }
int64_t graph_launches() { return g_graph_launches; }
int64_t graphs() { return g_graphs; }
int64_t calls(const std::string& name) {
  int64_t sum = 0;
  for (const auto& [called, count] : t_calls) sum += called == name ? count : 0;
  return sum;
}
int64_t calls() {
  int64_t sum = 0;
  for (const auto& [name, count] : t_calls) sum += count;
  return sum;
}
int64_t bad_accesses() { return g_bad_accesses; }
int64_t direct_copies() { return g_direct_copies; }
int64_t staged_copies() { return g_staged_copies; }
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
  g_contexts[device] = true;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  ENTER();
  // The second device has no pools.
  *value = attribute == cudaDevAttrMemoryPoolsSupported ? device != 1 : 4;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  ENTER();
  *can = fake::CanReach(device, peer);
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  ENTER_CONTEXT();
  g_contexts[peer] = true;
  if (!fake::CanReach(t_device, peer)) return Return(cudaErrorPeerAccessUnsupported);
  if (g_peers[t_device][peer].exchange(true)) return Return(cudaErrorPeerAccessAlreadyEnabled);
  return cudaSuccess;
}
static int PrimaryContextState(int device, unsigned*, int* active) {
  *active = g_contexts[device];
  return 0;
}
static cudaError_t FindEntryPoint(const char* symbol, void** function,
                                  cudaDriverEntryPointQueryResult* result) {
  const bool known = std::strcmp(symbol, "cuDevicePrimaryCtxGetState") == 0;
  *function = known ? reinterpret_cast<void*>(&PrimaryContextState) : nullptr;
  *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  ENTER();
  return FindEntryPoint(symbol, function, result);
}
#else
cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* result) {
  ENTER();
  return FindEntryPoint(symbol, function, result);
}
#endif
cudaError_t cudaDeviceSynchronize() {
  ENTER_CONTEXT();
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
  ENTER_CONTEXT();
  std::lock_guard lock(streams().mutex);
  *stream = streams().all.emplace_back(std::make_unique<CUstream_st>(t_device)).get();
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  ENTER_CONTEXT();
  FIND(stream).destroyed = true;  // what was issued still runs
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  ENTER_STREAM();
  CUstream_st& found = FIND(stream);
  std::lock_guard lock(capture_mutex());
  *status = !found.capture         ? cudaStreamCaptureStatusNone
            : found.capture->valid ? cudaStreamCaptureStatusActive
                                   : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  ENTER_STREAM();
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
  const cudaError_t failure = EnterContext(__func__);  // the capture ends all the same
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
  if (failure != cudaSuccess) return failure;
  if (!capture->valid) return Return(cudaErrorStreamCaptureInvalidated);
  if (!joined) return Return(cudaErrorStreamCaptureUnjoined);
  *graph = new CUgraph_st(*capture->graph);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  ENTER_CONTEXT();
  *executable = new CUgraphExec_st{std::make_shared<const CUgraph_st>(*graph)};
  ++g_graphs;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  EnterContext(__func__);
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  EnterContext(__func__);
  delete executable;  // launches in flight go on
  --g_graphs;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  ENTER_STREAM();
  REFUSE_CAPTURE(stream);
  ++g_graph_launches;
  FIND(stream).Push([graph = executable->graph] { graph->Run(); });
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  ENTER_STREAM();
  REFUSE_CAPTURE(stream);
  return FIND(stream).Idle() ? cudaSuccess : Return(cudaErrorNotReady);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  ENTER_STREAM();
  REFUSE_CAPTURE(stream);
  ++g_host_waits;
  FIND(stream).Drain();
  return Return(g_device_failure.load());
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  ENTER_STREAM();
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
  if (auto recording = event->Current()) found.Push(Item{[] {}, recording});
  return cudaSuccess;
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                  unsigned) {
  ENTER_STREAM();
  REFUSE_CAPTURE(stream);
  ++g_callbacks;
  const auto run = [=] {
    std::lock_guard lock(callback_mutex());
    t_in_callback = true;
    callback(stream, g_device_failure.load(), data);
    t_in_callback = false;
  };
  FIND(stream).Push(Item{run, nullptr, /*is_callback=*/true});
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  ENTER_STREAM();
  CUstream_st& found = FIND(stream);
  // Stands for a kernel, unlike a callback.
  if (found.device != t_device) return Return(cudaErrorInvalidResourceHandle);
  found.Issue([=] { function(data); });
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  ENTER_CONTEXT();
  *event = new CUevent_st{t_device, (flags & cudaEventDisableTiming) == 0, {}, {}};
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  ENTER_STREAM();
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
  ENTER_STREAM();
  if (event->Invalidates()) return Return(cudaErrorCapturedEvent);
  const auto recording = event->Current();
  if (!recording || recording->Done()) return cudaSuccess;
  if (t_draws) scheduler().Step(/*callbacks=*/false, /*late_too=*/true);  // so that a loop ends
  return recording->Done() ? cudaSuccess : Return(cudaErrorNotReady);
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  ENTER_CONTEXT();
  const auto begin = from->Current(), end = to->Current();
  if (!begin || !end || !from->timed || !to->timed) return Return(cudaErrorInvalidResourceHandle);
  if (!begin->Done() || !end->Done()) return Return(cudaErrorNotReady);
  *ms = static_cast<float>(end->at - begin->at) / 1e6f;
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ENTER_STREAM();
  if (event->Invalidates()) return Return(cudaErrorCapturedEvent);
  ++g_host_waits;
  if (const auto recording = event->Current()) {
    if (g_scheduled)
      scheduler().RunUntil([&] { return recording->Done(); }, nullptr, t_draws);
    else
      recording->Wait();
  }
  return cudaSuccess;
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  ENTER_CONTEXT();
  *pool = new CUmemPoolHandle_st{properties->location.id, {}};
  return cudaSuccess;
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  ENTER_CONTEXT();
  delete pool;  // its memory must have been freed
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  ENTER_CONTEXT();
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* access,
                                 size_t count) {
  ENTER_CONTEXT();
  for (size_t i = 0; i < count; ++i) {
    const int device = access[i].location.id;
    if (!fake::CanReach(device, pool->device)) return Return(cudaErrorPeerAccessUnsupported);
    pool->accessible[device] = access[i].flags == cudaMemAccessFlagsProtReadWrite;
  }
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) {
  ENTER_CONTEXT();
  ++g_trims;
  return cudaSuccess;
}
cudaError_t cudaMallocFromPoolAsync(void** data, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  ENTER_STREAM();
  REFUSE_CAPTURE(stream);  // CUDA makes a node of it
  CUstream_st& found = FIND(stream);
  if (found.device != pool->device) return Return(cudaErrorInvalidValue);
  if (IsOutOfMemory()) return Return(cudaErrorMemoryAllocation);
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
  *data = AllocateOn(pool->device, bytes, pool);
  return *data ? cudaSuccess : Return(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  ENTER_STREAM();
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
  ENTER_CONTEXT();
  REFUSE_IN_CAPTURE();
  ++g_mallocs;
  if (IsOutOfMemory()) return Return(cudaErrorMemoryAllocation);
  *data = AllocateOn(t_device, bytes);
  return *data ? cudaSuccess : Return(cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void* data) {
  ENTER_CONTEXT();
  REFUSE_IN_CAPTURE();
  cudaDeviceSynchronize();
  FreeNow(data);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  ENTER_CONTEXT();
  REFUSE_IN_CAPTURE();
  if (IsOutOfMemory()) return Return(cudaErrorMemoryAllocation);
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  ENTER_CONTEXT();
  REFUSE_IN_CAPTURE();
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  ENTER_STREAM();
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (to_device != (fake::DeviceOf(to) >= 0) || from_device != (fake::DeviceOf(from) >= 0))
    return Return(cudaErrorInvalidValue);
  FIND(stream).Issue([=] { RunCopy(to, to_device, from, from_device, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                size_t bytes, cudaStream_t stream) {
  ENTER_STREAM();
  if (fake::DeviceOf(to) != to_device || fake::DeviceOf(from) != from_device)
    return Return(cudaErrorInvalidValue);
  ++(fake::CanAccess(to_device, from) && fake::CanAccess(from_device, to) ? g_direct_copies
                                                                          : g_staged_copies);
  FIND(stream).Issue([=] { RunCopy(to, true, from, true, bytes); });
  return cudaSuccess;
}

}  // extern "C"
