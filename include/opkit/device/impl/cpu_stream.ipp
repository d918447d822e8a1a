// The definitions of opkit/device/cpu_stream.hpp.
#ifndef OPKIT_DEVICE_IMPL_CPU_STREAM_IPP_
#define OPKIT_DEVICE_IMPL_CPU_STREAM_IPP_

#include "opkit/device/cpu_stream.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

OPKIT_INLINE CPUStream::Registry& CPUStream::All() {
  // Never freed: the threads use their streams until the process ends.
  static Registry* const registry = [] {
    pthread_atfork([] { All().mutex.Lock(); }, [] { All().mutex.Unlock(); },
                   [] {
                     All().mutex.ResetAfterFork();
                     All().streams = nullptr;  // their threads exist in the parent only
                   });
    return new Registry;
  }();
  return *registry;
}

OPKIT_INLINE CPUStream& CPUStream::Get(Device device, int id) {
  if (t_cpu_stream) return *t_cpu_stream;
  if (id < 0) Throw(ErrorCode::kInvalidArgument, "stream id ", id, " is negative");
  MutexLock lock(All().mutex);
  if (CPUStream* stream = All().Find(device, id)) return *stream;
  auto* stream = new CPUStream(device, id);
  stream->next_ = std::exchange(All().streams, stream);
  return *stream;
}

OPKIT_INLINE void CPUStream::Record(Event& event) {
  // An event that was cancelled before it was recorded still keeps its memory until the stream
  // reaches this item.
  if (event.SetScheduled() || event.Query() == EventStatus::kFailed)
    Push({{}, event.state(), {}, {}});
}

OPKIT_INLINE void CPUStream::WaitEvent(const Event& event) {
  const EventStatus status = event.Query();
  if (status == EventStatus::kSuccess) return;
  if (status == EventStatus::kInitialized)
    Throw(ErrorCode::kFailedPrecondition,
          "a stream cannot wait for an event that was never recorded: run the operator first");
  event.state()->RequestNotification();
  Push({{}, {}, event.state(), {}});
}

OPKIT_INLINE CPUStream* CPUStream::Registry::Find(Device device, int id) const {
  for (CPUStream* stream = streams; stream; stream = stream->next_)
    if (stream->device_ == device && stream->id_ == id) return stream;
  return nullptr;
}

OPKIT_INLINE CPUStream::CPUStream(Device device, int id) : device_(device), id_(id) {
  queue_.reserve(kUsualBatch);
  const auto serve = [](void* self) -> void* {
    static_cast<CPUStream*>(self)->Serve();
    return nullptr;
  };
  pthread_t thread;
  if (pthread_create(&thread, nullptr, serve, this) != 0)
    Throw(ErrorCode::kOutOfMemory, "cannot start the thread of stream ", id);
  pthread_detach(thread);
}

OPKIT_INLINE void CPUStream::Push(Item item) {
  item.issuer = t_issuer;
  if (id_ < 0) {
    Failures failures;
    Execute(item, failures);
    if (std::exception_ptr failure = failures.Take(item.issuer)) std::rethrow_exception(failure);
    return;
  }
  Parker::Address sleeper = nullptr;
  {
    MutexLock lock(mutex_);
    queue_.push_back(std::move(item));
    if (parked_) sleeper = std::exchange(parked_, nullptr)->Set();
  }
  if (sleeper) Parker::Wake(sleeper);
}

OPKIT_INLINE void CPUStream::Next(std::vector<Item>& items) {
  for (;;) {
    Parker parker;
    {
      MutexLock lock(mutex_);
      busy_ = !queue_.empty();
      if (busy_) return items.swap(queue_);
      parked_ = &parker;
    }
    parker.Wait();
  }
}

OPKIT_INLINE void CPUStream::Serve() {
  Failures failures;
  std::vector<Item> items;
  items.reserve(kUsualBatch);
  for (;;) {
    Next(items);
    for (Item& item : items) {
      Execute(item, failures);
      item = {};  // frees the closure before the next item runs
    }
    items.clear();
  }
}

OPKIT_INLINE void CPUStream::Failures::Add(uint64_t issuer, std::exception_ptr failure) {
  list_.emplace_back(issuer, std::move(failure));
}
OPKIT_INLINE std::exception_ptr CPUStream::Failures::Take(uint64_t issuer) {
  const auto* found = Find(issuer);
  if (!found) found = Find(0);
  if (!found) return nullptr;
  std::exception_ptr failure = found->second;
  list_.erase(list_.begin() + (found - list_.data()));
  return failure;
}

OPKIT_INLINE void CPUStream::Execute(Item& item, Failures& failures) {
  if (item.record) {
    // The stream may use the memory of a cancelled event until now. Frees it before the event
    // completes, so that a thread that has waited finds it freed.
    item.record->retained.clear();
    item.record->Complete(failures.Take(item.issuer));
  } else if (failures.Concerns(item.issuer)) {
    return;
  } else if (item.wait) {
    if (!IsTerminal(item.wait->status())) {
      // Relaxed: a statistic.
      blocking_waits_.fetch_add(1, std::memory_order_relaxed);
      item.wait->Wait({});
    }
    if (item.wait->status() == EventStatus::kFailed)
      failures.Add(item.issuer, item.wait->exception());
  } else {
    auto scope = InvocationScope::Adopt(item.invocation);
    try {
      item.work();
    } catch (...) {
      failures.Add(item.issuer, std::current_exception());
    }
  }
}

}  // namespace detail

OPKIT_INLINE void CPUStreamContext::FinishDeviceComputation() {
  if (drained_)
    drained_->Reset();
  else
    drained_.emplace(device_);
  drained_->state()->SetPrivate();
  stream().Record(*drained_);
  drained_->Finish();
}

}}  // namespace opkit

#endif  // OPKIT_DEVICE_IMPL_CPU_STREAM_IPP_
