// CUDAStream: an in-order queue of a CUDA device. Every thread has its own streams, by id. Contexts
// issue work on streams, and events are recorded on them. Other streams and the host wait for marks
// in a stream.
#ifndef OPKIT_BACKENDS_CUDA_STREAM_HPP_
#define OPKIT_BACKENDS_CUDA_STREAM_HPP_

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <map>
#include <typeinfo>
#include <vector>

#include "opkit/backends/cuda/completion.hpp"
#include "opkit/backends/cuda/mark.hpp"
#include "opkit/base/ref_counted.hpp"
#include "opkit/device/invocation.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

class CUDARecording;  // recording.hpp

// The streams of one thread. When the thread ends they become idle; the next thread that needs a
// stream of the same device and id reuses them. Streams are never destroyed.
struct CUDAThreadStreams {
  struct OfDevice {
    std::vector<CUDAStream*> by_id;
    CUDAStream* current = nullptr;
    uint64_t issuer = 0;           // the IssueScope in which `current` was chosen
    CUDAStream* forced = nullptr;  // set by a CUDAStreamScope
  };
  std::vector<OfDevice> devices;        // by device index
  std::vector<CUDAStream*> with_slots;  // foreign streams in which the thread has slots
};
// The streams of threads that have ended, and all foreign streams of the process. `mutex` guards
// both.
struct CUDAIdleStreams {
  static CUDAIdleStreams& Global() {
    static auto* idle = new CUDAIdleStreams;
    return *idle;
  }
  std::mutex mutex;
  std::map<std::pair<int, int>, std::vector<CUDAStream*>> by_device_and_id;
  std::map<std::pair<int, cudaStream_t>, CUDAStream*> foreign;
};
// A plain pointer, so that destructors of other thread-local objects can still read it.
inline constinit thread_local CUDAThreadStreams* t_cuda_streams = nullptr;

// The work that a thread is recording (recording.hpp).
struct CUDARecordingState {
  Device device;
  std::vector<CUDAStream*> streams;           // by id; each is being captured
  std::vector<UniqueFunction<void()>> after;  // what waits for the capture's end; must not throw
  RefCountedList kept;                        // objects that the recorded work uses
};
inline constinit thread_local CUDARecordingState* t_cuda_recording = nullptr;

// The types of the objects that streams hold (CUDAStream::Slot), with their makers.
struct CUDASlotTypes {
  struct Type {
    const std::type_info* type;
    void* (*make)(cudaStream_t);
  };
  static CUDASlotTypes& Global() {
    static auto* types = new CUDASlotTypes;
    return *types;
  }
  std::mutex mutex;
  std::vector<Type> all;
};

}  // namespace detail

// A stream. Thread-safe. Lives as long as the process.
class CUDAStream {
 public:
  static constexpr int kMaxId = 4095;

  // Returns the calling thread's stream `id` of `device`, created at first use. Inside a
  // CUDAStreamScope returns the scope's stream for every id; during a recording the recording's
  // stream. Throws kUnsupported if this machine has no such device, kOutOfRange for an id outside 0
  // to kMaxId.
  static CUDAStream& Get(Device device, int id) {
    if (const auto* recording = detail::t_cuda_recording; recording && recording->device == device)
        [[unlikely]]
      return *recording->streams[detail::Index(id) % recording->streams.size()];
    auto& mine = OfThisThread(device);
    if (mine.forced) return *mine.forced;
    if (id < 0 || id > kMaxId)
      Throw(ErrorCode::kOutOfRange, "stream id ", id, " is outside 0 to ", kMaxId);
    if (static_cast<size_t>(id) >= mine.by_id.size())
      mine.by_id.resize(static_cast<size_t>(id) + 1);
    CUDAStream*& stream = mine.by_id[detail::Index(id)];
    if (!stream) stream = TakeIdleOrMake(device, id);
    return *stream;
  }
  // Returns the stream on which this thread last issued work of the device; null before the first.
  static CUDAStream* Current(int device_index) {
    const auto* mine = FindOfThisThread(device_index);
    return mine ? mine->current : nullptr;
  }
  // Returns the stream of the run that this thread is issuing on the device; null outside runs.
  static CUDAStream* Issuing(int device_index) {
    if (detail::t_issuer == 0) return nullptr;
    const auto* mine = FindOfThisThread(device_index);
    return mine && mine->issuer == detail::t_issuer ? mine->current : nullptr;
  }
  static void SetCurrent(CUDAStream& stream) {
    auto& mine = OfThisThread(stream.device());
    mine.current = &stream;
    mine.issuer = detail::t_issuer;
  }
  // Wraps a stream that the caller owns; always the same object for the same stream. A null handle
  // means the default stream of the device. Throws kUnsupported for the default stream of a thread
  // (cudaStreamPerThread, and null under nvcc --default-stream per-thread), because completions are
  // processed on other threads.
  static CUDAStream& Foreign(Device device, cudaStream_t handle) {
    CheckCUDADevice(device);
    if (IsPerThread(handle))
      Throw(ErrorCode::kUnsupported,
            "the default stream of a thread is another one on each thread: create a stream");
    if (!handle) handle = cudaStreamLegacy;
    auto& registry = detail::CUDAIdleStreams::Global();
    std::lock_guard lock(registry.mutex);
    CUDAStream*& stream = registry.foreign[{device.index, handle}];
    if (!stream) stream = new CUDAStream(device, -1, handle, /*foreign=*/true);
    return *stream;
  }
  // Makes a new stream without an id, which Get never returns.
  static CUDAStream* MakeUnshared(Device device) {
    return new CUDAStream(device, -1, Create(device));
  }

  CUDAStream(const CUDAStream&) = delete;
  CUDAStream& operator=(const CUDAStream&) = delete;

  Device device() const { return device_; }
  int id() const { return id_; }  // -1 for streams without an id
  cudaStream_t handle() const { return handle_; }
  // True for streams from Foreign. Outside its CUDAStreamScope the owner may have destroyed such a
  // stream.
  bool is_foreign() const { return foreign_; }
  // Throws kUnsupported while the stream is captured into a CUDA graph: an operator's allocations
  // and event belong to one run and could not be replayed.
  void CheckNotCapturing() const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const CUDADeviceGuard guard(device_);
    OPKIT_CUDA_CHECK(cudaStreamIsCapturing(handle_, &status));
    if (status != cudaStreamCaptureStatusNone) [[unlikely]]
      Throw(ErrorCode::kUnsupported,
            "the stream is being captured into a CUDA graph, where operators cannot run: their "
            "memory and events belong to one run; end the capture first");
  }
  // Does the same once for each run that this thread issues, and not in a recording, which captures
  // streams of its own.
  void CheckNotCapturingYet() const {
    if (!detail::t_cuda_recording && Issuing(device_.index) != this) CheckNotCapturing();
  }

  // Marks the work issued so far. With `timed` the mark records when the stream passed it. Throws
  // the errors of CheckNotCapturing and of CUDA.
  detail::CUDAMark Mark(bool timed = false) {
    CheckNotCapturingYet();  // a query of a mark would end the capture
    detail::CUDAMark mark(this, device_.index, timed);
    const CUDADeviceGuard guard(device_);
    std::lock_guard lock(mutex_);  // so that the numbers follow the stream's order
    OPKIT_CUDA_CHECK(cudaEventRecord(mark.event_, handle_));
    mark.sequence_ = ++marks_;
    return mark;
  }
  // Makes work that is issued from now on run after the mark. Costs nothing for a mark of this
  // stream.
  void Wait(const detail::CUDAMark& mark) {
    // Foreign streams do not skip the wait: a stream may have been destroyed and a new one have the
    // same handle.
    if (mark.stream_ == this && !foreign_) return;
    const CUDADeviceGuard guard(device_);
    OPKIT_CUDA_CHECK(cudaStreamWaitEvent(handle_, mark.event_, 0));
  }
  // Blocks the host until the work issued so far on this stream is done.
  void Synchronize() {
    const CUDADeviceGuard guard(device_);
    OPKIT_CUDA_CHECK(cudaStreamSynchronize(handle_));
  }
  bool IsFree() const {
    const CUDADeviceGuard guard(device_);
    const cudaError_t status = cudaStreamQuery(handle_);
    if (status == cudaErrorNotReady) {
      detail::ForgetNotReady();
      return false;
    }
    OPKIT_CUDA_CHECK(status);
    return true;
  }

  // Calls done(status) on a completion thread once the stream has passed the mark. If CUDA accepts
  // no more work, calls `done` at once on this thread. Does not delay this stream; a late mark does
  // not delay the notification of an earlier one.
  void WhenReached(const detail::CUDAMark& mark, UniqueFunction<void(cudaError_t)> done) {
    auto& completions = detail::CUDACompletions::Global();
    completions.EnsureServed();
    auto item = std::make_unique<detail::CUDACompletions::Item>();
    cudaError_t status = cudaSuccess;
    {
      std::lock_guard lock(mutex_);
      Notifier& notifier = NotifierFor(mark.sequence_);
      item->done = [&notifier, done = std::move(done)](cudaError_t reached) mutable {
        // Relaxed: a thread that reads an old count merely uses another notifier.
        notifier.pending.fetch_sub(1, std::memory_order_relaxed);
        done(reached);
      };
      notifier.pending.fetch_add(1, std::memory_order_relaxed);
      if (notifier.last < mark.sequence_) notifier.last = mark.sequence_;
      CUDADeviceGuard guard;
      status = guard.Enter(device_.index);
      if (status == cudaSuccess) status = cudaStreamWaitEvent(notifier.handle, mark.event_, 0);
      // Not cudaLaunchHostFunc: CUDA does not call its function after a kernel has failed, so that
      // the event would never complete.
      if (status == cudaSuccess)
        status = cudaStreamAddCallback(notifier.handle, &OnReached, item.get(), 0);
    }
    if (status == cudaSuccess) {
      item.release();  // OnReached owns it now
    } else {
      cudaGetLastError();
      item->done(status);
    }
  }

  // Takes `memory` and frees it within about 1 ms after the work issued so far is done. Costs
  // almost nothing while memory that was kept earlier is not yet freed.
  void Keep(detail::RefCountedList& memory) {
    if (!foreign_) {
      std::lock_guard lock(kept_mutex_);
      if (releasing_) {
        for (auto& one : memory)
          if (!IsLatest(one)) unmarked_.push_back(std::move(one));
        return memory.clear();
      }
    }
    detail::CUDAMark mark = Mark();
    KeepUntil(mark, memory);
  }
  // Takes `mark`, a mark of this stream, and `memory`, and frees the memory once the stream has
  // passed the mark. At most one notification is under way at a time, for all kept memory.
  void KeepUntil(detail::CUDAMark& mark, detail::RefCountedList& memory) {
    const detail::CUDAMark* awaited = nullptr;
    {
      std::lock_guard lock(kept_mutex_);
      Kept& kept = kept_.emplace_back();
      kept.mark = std::move(mark);
      kept.memory.swap(memory);
      if (!std::exchange(releasing_, true)) awaited = &kept.mark;
    }
    if (awaited) ReleaseWhenReached(*awaited);
  }

  // Returns the object of type T that the calling thread has for this stream, for the handles that
  // libraries need: two threads may use a foreign stream at once, but not one handle. At first use
  // constructs it as T(cudaStream_t), with the device current. A thread that ends leaves its
  // objects to the next thread.
  //
  //   struct Cublas {
  //     explicit Cublas(cudaStream_t stream) { cublasCreate(&handle); cublasSetStream(handle,
  //     stream); } cublasHandle_t handle;
  //   };
  //   cublasSgemm(context_.stream().Slot<Cublas>().handle, …);
  template <class T>
  T& Slot() {
    const void* const owner = foreign_ ? OwnerOfSlots() : this;
    std::lock_guard lock(slots_mutex_);
    if (void* const object = FindSlot(typeid(T), owner)) return *static_cast<T*>(object);
    const detail::CUDASlotTypes::Type type{
        &typeid(T), [](cudaStream_t handle) -> void* { return new T(handle); }};
    void* const object = AddSlot(type, owner);
    auto& types = detail::CUDASlotTypes::Global();
    std::lock_guard types_lock(types.mutex);
    const auto is_same = [&](const auto& known) { return *known.type == typeid(T); };
    if (std::ranges::none_of(types.all, is_same)) types.all.push_back(type);
    return *static_cast<T*>(object);
  }
  // Makes this stream's objects of all types that some stream has. A capture of the stream must not
  // begin before, because constructors of libraries' handles may allocate and synchronise. The
  // stream must not be foreign.
  void MakeSlots() {
    std::vector<detail::CUDASlotTypes::Type> all;
    {
      auto& types = detail::CUDASlotTypes::Global();
      std::lock_guard lock(types.mutex);
      all = types.all;
    }
    std::lock_guard lock(slots_mutex_);
    for (const auto& type : all)
      if (!FindSlot(*type.type, this)) AddSlot(type, this);
  }

 private:
  friend class CUDAStreamScope;
  friend class detail::CUDARecording;

  // A CUDA stream that waits for marks and calls back, in the order of the requests.
  struct Notifier {
    cudaStream_t handle = nullptr;
    uint64_t last = 0;
    std::atomic<int> pending{0};
  };

  // An object of Slot, and the thread that uses it.
  struct SlotObject {
    const std::type_info* type;
    void* object;
    const void* owner;  // the stream itself if only one thread uses it; null: no thread
  };

  // Memory to free once the stream has passed the mark.
  struct Kept {
    detail::CUDAMark mark;
    detail::RefCountedList memory;
  };

  CUDAStream(Device device, int id, cudaStream_t handle, bool foreign = false)
      : device_(device), id_(id), foreign_(foreign), handle_(handle) {}

  // Returns the owner's object of the type, or one that no thread uses any more; null if there is
  // none. slots_mutex_ must be held.
  void* FindSlot(const std::type_info& type, const void* owner) {
    SlotObject* idle = nullptr;
    for (SlotObject& slot : slots_) {
      if (*slot.type != type) continue;
      if (slot.owner == owner) return slot.object;
      if (!slot.owner) idle = &slot;
    }
    if (!idle) return nullptr;
    idle->owner = owner;
    return idle->object;
  }
  // Returns a new object, which is never destroyed, like the stream. slots_mutex_ must be held.
  void* AddSlot(const detail::CUDASlotTypes::Type& type, const void* owner) {
    const CUDADeviceGuard guard(device_);
    void* const object = type.make(handle_);
    slots_.push_back({type.type, object, owner});
    return object;
  }

  static bool IsPerThread(cudaStream_t handle) {
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
    if (!handle) return true;
#endif
    return handle == cudaStreamPerThread;
  }
  // True if the memory is among the latest that was kept without a mark, as that of operators which
  // run again, or read what the operator before them wrote. kept_mutex_ must be held.
  bool IsLatest(const detail::IntrusivePtr<detail::RefCounted>& memory) const {
    constexpr size_t kLatest = 4;
    const size_t size = unmarked_.size();
    for (size_t i = size > kLatest ? size - kLatest : 0; i < size; ++i)
      if (unmarked_[i] == memory) return true;
    return false;
  }
  // Requests a call of Release. `mark` stays valid: only Release removes it from kept_, and at most
  // one Release is under way.
  void ReleaseWhenReached(const detail::CUDAMark& mark) {
    try {
      WhenReached(mark, [this](cudaError_t) { Release(); });
    } catch (...) {  // no memory or thread for it: the next notification frees this memory, too
      std::lock_guard lock(kept_mutex_);
      releasing_ = false;
    }
  }
  // Frees the memory whose marks the stream has passed, and requests a notification for the rest.
  // Memory without a mark gets one later, and so does memory that is kept soon: a notification
  // takes three calls of CUDA, whose locks the launches of the issuing thread need too. Does not
  // hold kept_mutex_ during CUDA calls, because that thread must not wait for them.
  void Release(bool marks = false) {
    std::list<Kept> kept;
    detail::RefCountedList unmarked;
    {
      std::lock_guard lock(kept_mutex_);
      kept.swap(kept_);
      if (marks) unmarked.swap(unmarked_);
    }
    if (!unmarked.empty()) MarkKept(kept, unmarked);
    kept.remove_if([](const Kept& one) { return one.mark.Query() != cudaErrorNotReady; });
    const detail::CUDAMark* awaited = nullptr;
    {
      std::lock_guard lock(kept_mutex_);
      kept_.splice(kept_.end(), kept);
      if (!kept_.empty())
        awaited = &kept_.back().mark;
      else if (marks && unmarked_.empty())
        return static_cast<void>(releasing_ = false);
    }
    awaited ? ReleaseWhenReached(*awaited) : ReleaseLater();
  }
  void ReleaseLater() {
    try {
      auto item = std::make_unique<detail::CUDACompletions::Item>();
      item->done = [this](cudaError_t) { Release(/*marks=*/true); };
      detail::CUDACompletions::Global().PushLater(std::move(item));
    } catch (...) {  // as in ReleaseWhenReached
      std::lock_guard lock(kept_mutex_);
      releasing_ = false;
    }
  }
  // Adds a mark for memory that was kept without one. If the device accepts no more work, frees the
  // memory.
  void MarkKept(std::list<Kept>& kept, detail::RefCountedList& unmarked) {
    try {
      detail::CUDAMark mark = Mark();
      Kept& one = kept.emplace_back();
      one.mark = std::move(mark);
      one.memory.swap(unmarked);
    } catch (const Error&) {
      unmarked.clear();
    }
  }

  static cudaStream_t Create(Device device) {
    CheckCUDADevice(device);
    CUDADeviceGuard guard(device);
    cudaStream_t handle = nullptr;
    OPKIT_CUDA_CHECK(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking));
    return handle;
  }
  static const detail::CUDAThreadStreams::OfDevice* FindOfThisThread(int device_index) {
    if (!detail::t_cuda_streams) return nullptr;
    const auto& devices = detail::t_cuda_streams->devices;
    const auto index = static_cast<size_t>(device_index);
    return index < devices.size() ? &devices[index] : nullptr;
  }
  static detail::CUDAThreadStreams::OfDevice& OfThisThread(Device device) {
    if (!detail::t_cuda_streams) {
      // Makes the thread's streams idle when the thread ends.
      struct Keeper {
        ~Keeper() { ReturnStreams(); }
      };
      static thread_local Keeper keeper;
      static_cast<void>(keeper);
      detail::t_cuda_streams = new detail::CUDAThreadStreams;
    }
    auto& devices = detail::t_cuda_streams->devices;
    const auto index = static_cast<size_t>(device.index);
    if (index >= devices.size()) {
      CheckCUDADevice(device);
      devices.resize(index + 1);
    }
    return devices[index];
  }
  static void ReturnStreams() {
    const std::unique_ptr<detail::CUDAThreadStreams> mine(
        std::exchange(detail::t_cuda_streams, nullptr));
    if (!mine) return;
    for (CUDAStream* stream : mine->with_slots) stream->LeaveSlots(mine.get());
    auto& idle = detail::CUDAIdleStreams::Global();
    std::lock_guard lock(idle.mutex);
    for (const auto& streams : mine->devices)
      for (CUDAStream* stream : streams.by_id)
        if (stream) idle.by_device_and_id[{stream->device_.index, stream->id_}].push_back(stream);
  }
  // Notes that the calling thread has slots in this foreign stream. Returns the thread's mark of
  // its slots.
  const void* OwnerOfSlots() {
    OfThisThread(device_);
    auto& streams = detail::t_cuda_streams->with_slots;
    for (const CUDAStream* known : streams)
      if (known == this) return detail::t_cuda_streams;
    streams.push_back(this);
    return detail::t_cuda_streams;
  }
  void LeaveSlots(const void* owner) {
    std::lock_guard lock(slots_mutex_);
    for (SlotObject& slot : slots_)
      if (slot.owner == owner) slot.owner = nullptr;
  }
  static CUDAStream* TakeIdleOrMake(Device device, int id) {
    {
      auto& idle = detail::CUDAIdleStreams::Global();
      std::lock_guard lock(idle.mutex);
      auto& candidates = idle.by_device_and_id[{device.index, id}];
      if (!candidates.empty()) {
        CUDAStream* stream = candidates.back();
        candidates.pop_back();
        return stream;
      }
    }
    return new CUDAStream(device, id, Create(device));
  }
  // Returns a notifier that waits for no mark later than `sequence`; creates a notifier if there is
  // none. Several exist only if notifications are requested in another order than the marks.
  Notifier& NotifierFor(uint64_t sequence) {
    for (const auto& notifier : notifiers_)
      if (notifier->last <= sequence || notifier->pending.load(std::memory_order_relaxed) == 0)
        return *notifier;
    auto notifier = std::make_unique<Notifier>();
    notifier->handle = Create(device_);
    return *notifiers_.emplace_back(std::move(notifier));
  }
  static void CUDART_CB OnReached(cudaStream_t, cudaError_t status, void* data) {
    std::unique_ptr<detail::CUDACompletions::Item> item(
        static_cast<detail::CUDACompletions::Item*>(data));
    item->status = status;
    detail::CUDACompletions::Global().Push(std::move(item));
  }

  const Device device_;
  const int id_;
  const bool foreign_;
  const cudaStream_t handle_;
  std::mutex mutex_;
  uint64_t marks_ = 0;
  std::vector<std::unique_ptr<Notifier>> notifiers_;
  std::mutex kept_mutex_;
  std::list<Kept> kept_;
  detail::RefCountedList unmarked_;   // memory without a mark, kept while releasing_ is set
  bool releasing_ = false;            // a notification that calls Release is under way
  std::recursive_mutex slots_mutex_;  // recursive: the constructor of a T may use another slot
  std::vector<SlotObject> slots_;
};

// While the scope lives, the calling thread issues its work for `device` on the given stream, for
// every stream id. The stream may be destroyed after the scope: events and memory of the runs
// inside keep what they need. Throws the errors of CUDAStream::Foreign.
//
//   opkit::CUDAStreamScope scope({opkit::DeviceType::kCUDA, 0}, my_stream);
//   op->RunAsync();
class CUDAStreamScope {
 public:
  CUDAStreamScope(Device device, cudaStream_t stream)
      : stream_(CUDAStream::Foreign(device, stream)) {
    auto& mine = CUDAStream::OfThisThread(device);
    previous_ = std::exchange(mine.forced, &stream_);
    previous_current_ = std::exchange(mine.current, &stream_);
  }
  CUDAStreamScope(const CUDAStreamScope&) = delete;
  CUDAStreamScope& operator=(const CUDAStreamScope&) = delete;
  ~CUDAStreamScope() {
    auto& mine = CUDAStream::OfThisThread(stream_.device());
    mine.forced = previous_;
    mine.current = previous_current_;
  }

 private:
  CUDAStream& stream_;
  CUDAStream* previous_ = nullptr;
  CUDAStream* previous_current_ = nullptr;
};

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_STREAM_HPP_
