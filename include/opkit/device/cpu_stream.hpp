// CPUStreamContext: a CPU device with in-order asynchronous streams, each served by a thread of its
// own. A real asynchronous device on every machine: tests of streams, waits between streams,
// asynchronous errors and cancellation use it.
#ifndef OPKIT_DEVICE_CPU_STREAM_HPP_
#define OPKIT_DEVICE_CPU_STREAM_HPP_

#include <optional>

#include "opkit/base/scoped_value.hpp"
#include "opkit/device/context.hpp"
#include "opkit/device/invocation.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// An in-order queue of work. After a failure, work up to the next recorded event is skipped, and
// that event becomes FAILED with the exception; later work runs normally. The failure of an
// operator affects only its own work and event. Thread-safe. Streams with a thread live as long as
// the process. A forked child starts new streams under the same ids; it must not use an object that
// holds one of the parent's streams, such as an operator that has run.
class CPUStream {
 public:
  // Makes a stream without a thread: work runs at once when it is issued, and throws to its caller.
  // For a thread that a stream already runs at the right place in its order; see CPUStreamScope.
  explicit CPUStream(Device device) : device_(device), id_(-1) {}
  CPUStream(CPUStream&&) = delete;

  // Returns the process's stream `id` of `device`, started at first use; inside a CPUStreamScope,
  // the scope's stream for every id.
  static CPUStream& Get(Device device, int id);
  // Returns null if the stream has not been used yet.
  static CPUStream* Find(Device device, int id) {
    MutexLock lock(All().mutex);
    return All().Find(device, id);
  }

  Device device() const { return device_; }
  int id() const { return id_; }  // -1 for a stream without a thread

  // Runs `work` after all work issued before, under the caller's current invocation.
  void Launch(UniqueFunction<void()> work) { Push({std::move(work), {}, {}, CurrentInvocation()}); }
  // Makes the event SCHEDULED; it completes when the work issued so far is done.
  void Record(Event& event);
  // Makes work issued from now on run after the event, and fail with it. An event of the same
  // stream never blocks, because the stream is in order; but its failure makes the later work fail.
  // Error (kFailedPrecondition) for an event that was never recorded.
  void WaitEvent(const Event& event);
  // True when nothing is queued or running.
  bool IsFree() const {
    MutexLock lock(mutex_);
    return queue_.empty() && !busy_;
  }
  // Returns how often the stream's thread had to wait for another stream's event.
  int64_t blocking_waits() const { return blocking_waits_.load(std::memory_order_relaxed); }

 private:
  // The streams of the process that have a thread.
  struct Registry {
    CPUStream* Find(Device device, int id) const;
    Mutex mutex;
    CPUStream* streams = nullptr;
  };
  static Registry& All();

  static constexpr size_t kUsualBatch = 16;

  CPUStream(Device device, int id);

  // An item of the queue: work, an event to complete, or an event to wait for.
  struct Item {
    UniqueFunction<void()> work;
    IntrusivePtr<EventState> record;
    IntrusivePtr<EventState> wait;
    Invocation invocation;
    uint64_t issuer = 0;  // number of the IssueScope that issued the item; 0: none
  };
  // Failures that are not yet reported by an event; at most one for each issuer.
  class Failures {
   public:
    // True if work of the issuer is skipped: after a failure of its own, or of work without an
    // issuer.
    bool Concerns(uint64_t issuer) const { return Find(issuer) || Find(0); }
    void Add(uint64_t issuer, std::exception_ptr failure);
    std::exception_ptr Take(uint64_t issuer);

   private:
    const std::pair<uint64_t, std::exception_ptr>* Find(uint64_t issuer) const {
      for (const auto& failure : list_)
        if (failure.first == issuer) return &failure;
      return nullptr;
    }
    std::vector<std::pair<uint64_t, std::exception_ptr>> list_;
  };

  void Push(Item item);
  // Waits for work, then swaps the whole queue into `items`. The queue reuses the memory of
  // `items`.
  void Next(std::vector<Item>& items);
  void Serve();
  void Execute(Item& item, Failures& failures);

  const Device device_;
  const int id_;
  mutable Mutex mutex_;
  std::vector<Item> queue_;
  Parker* parked_ = nullptr;  // the stream's thread while it sleeps, else null
  bool busy_ = false;
  std::atomic<int64_t> blocking_waits_{0};
  CPUStream* next_ = nullptr;  // the next stream in the registry
};

inline constinit thread_local CPUStream* t_cpu_stream = nullptr;

// Makes the calling thread issue its work for CPU streams on this stream during the scope, whatever
// stream id operators run with.
class CPUStreamScope {
 public:
  explicit CPUStreamScope(CPUStream& stream) : stream_(t_cpu_stream, &stream) {}

 private:
  const ScopedValue<CPUStream*> stream_;
};

}  // namespace detail

// Issues work on a CPUStream of device {kCPUStream, index}.
class CPUStreamContext {
 public:
  static constexpr DeviceType kDeviceType = DeviceType::kCPUStream;
  static constexpr bool kAsynchronous = true;

  explicit CPUStreamContext(Device device = {kDeviceType, 0}) : device_(device) {
    if (device.type != kDeviceType)
      Throw(ErrorCode::kInvalidArgument, "CPUStreamContext cannot run on ", ToString(device),
            "; REGISTER_CPU_STREAM_OPERATOR registers an operator class of this context");
  }

  Device device() const { return device_; }
  detail::CPUStream& stream() {
    if (!stream_) SwitchToDevice(0);
    return *stream_;
  }
  void SwitchToDevice(int stream_id = 0) {
    if (!stream_ || stream_->id() != stream_id || detail::t_cpu_stream)
      stream_ = &detail::CPUStream::Get(device_, stream_id);
  }
  void Record(Event& event) { stream().Record(event); }
  void WaitEvent(const Event& event) { stream().WaitEvent(event); }
  void FinishDeviceComputation();
  static bool IsStreamFree(Device device, int stream_id) {
    const detail::CPUStream* stream = detail::CPUStream::Find(device, stream_id);
    return !stream || stream->IsFree();
  }

  // Runs `work` on the stream; returns at once.
  template <class F>
  void Launch(F&& work) {
    stream().Launch(std::forward<F>(work));
  }

 private:
  Device device_;
  detail::CPUStream* stream_ = nullptr;
  std::optional<Event> drained_;  // kept to reuse its memory
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/device/impl/cpu_stream.ipp"
#endif

#endif  // OPKIT_DEVICE_CPU_STREAM_HPP_
