// Definitions of the communicator on NCCL. NCCL's communicators do not block the host: a call that
// waits for other processes returns ncclInProgress, and Await polls, so that a failure of another
// process ends the wait.
#ifndef OPKIT_BACKENDS_NCCL_IMPL_COMMUNICATOR_IPP_
#define OPKIT_BACKENDS_NCCL_IMPL_COMMUNICATOR_IPP_

#include <nccl.h>

#include <algorithm>
#include <condition_variable>
#include <thread>
#include <utility>

#include "opkit/backends/cuda/context.hpp"
#include "opkit/backends/nccl/communicator.hpp"
#include "opkit/backends/nccl/types.hpp"
#include "opkit/base/algorithm.hpp"
#include "opkit/base/error.hpp"
#include "opkit/base/index.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

class NcclCommunicator final : public Communicator {
 public:
  // Takes a communicator of the host that no other object uses.
  NcclCommunicator(CommunicatorPtr host, Device device, Timeout deadline)
      : host_(std::move(host)), device_(device), deadline_(deadline) {}
  ~NcclCommunicator() override;

  static CommunicatorPtr Make(CommunicatorPtr host, Device device, Timeout deadline) {
    const auto made = MakeIntrusive<NcclCommunicator>(std::move(host), device, deadline);
    made->Follow(*made->host_);
    return made;
  }

  int process() const override { return host_->process(); }
  int processes() const override { return host_->processes(); }
  std::string_view backend() const override { return "nccl"; }
  Device device() const override { return device_; }
  CommunicatorPtr Duplicate() override { return Make(host_->Duplicate(), device_, deadline_); }
  std::vector<std::string> Exchange(const std::string& text) override {
    return host_->Exchange(text);
  }
  void MakeGroup(const std::vector<int>& group) override;

 private:
  void DoStart(IntrusivePtr<Communication> communication, const std::vector<int>& group) override;
  void TellBroken(const std::string& reason) noexcept override { BreakHost(*host_, reason); }
  void FailPending(const std::exception_ptr& error) noexcept override;

  void ForgetEnded() {
    std::erase_if(pending_, [](const auto& event) { return IsTerminal(event->status()); });
  }
  // Puts the calls of a communication on its stream. Returns the first failure.
  ncclResult_t Put(const Communication& c, const std::vector<int>& group, ncclComm_t comm);
  // Waits until NCCL has accepted a call. Throws kOperatorFailed for an error of NCCL, and
  // kCancelled if the communicator breaks meanwhile.
  void Await(ncclComm_t comm, ncclResult_t result, std::string_view what);
  // The body of watcher_: looks for failures of the work on streams ten times a second while there
  // is work. Breaks the communicator at the first failure, and ends.
  void Watch() noexcept;
  // Returns the text of a failure of NCCL; empty if there is none.
  std::string FindFailure();
  // Returns the state of a communicator: success, in progress, or the failure of a call or of work
  // that goes on.
  static ncclResult_t StateOf(ncclComm_t comm) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
    return asked == ncclSuccess ? state : asked;
  }
  // Gives a communicator back to NCCL once all processes do so. Returns false, without effect, at
  // the deadline.
  static bool Destroy(ncclComm_t comm, int64_t deadline_ns);

  const CommunicatorPtr host_;
  const Device device_;
  const Timeout deadline_;
  std::atomic<bool> is_failing_ = false;  // set before mutex_ is locked to abort NCCL's work

  std::mutex mutex_;  // guards comms_; NCCL takes the calls of one thread at a time
  std::map<std::vector<int>, ncclComm_t> comms_;  // by group; null: this process is no member
  Tensor token_{device_};                         // the element of barriers

  std::mutex pending_mutex_;  // guards the members below
  std::condition_variable changed_;
  std::vector<IntrusivePtr<EventState>> pending_;  // events of communications that may go on
  bool is_closing_ = false;

  std::thread watcher_;
};

OPKIT_INLINE NcclCommunicator::~NcclCommunicator() {
  Unfollow(*host_);
  {
    const std::lock_guard lock(pending_mutex_);
    is_closing_ = true;
  }
  changed_.notify_one();
  if (watcher_.get_id() == std::this_thread::get_id())
    watcher_.detach();  // it ends after this
  else if (watcher_.joinable())
    watcher_.join();
  const int64_t deadline_ns = deadline_.DeadlineNs();
  bool is_destroyed = true;
  CUDADeviceGuard guard;
  if (!comms_.empty()) static_cast<void>(guard.Enter(device_.index));
  for (const auto& [group, comm] : comms_)
    if (comm && !Destroy(comm, deadline_ns)) {
      is_destroyed = false;
      ncclCommAbort(comm);
    }
  if (!is_destroyed)
    BreakHost(*host_,
              StrCat("process ", process(), " has left: it has destroyed its communicator"));
}
OPKIT_INLINE bool NcclCommunicator::Destroy(ncclComm_t comm, int64_t deadline_ns) {
  ncclResult_t result = ncclCommFinalize(comm);
  while (result == ncclInProgress) {
    if (deadline_ns >= 0 && MonotonicNs() > deadline_ns) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    result = StateOf(comm);
  }
  return result == ncclSuccess && ncclCommDestroy(comm) == ncclSuccess;
}

OPKIT_INLINE void NcclCommunicator::Watch() noexcept {
  std::unique_lock lock(pending_mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_closing_ || !pending_.empty(); });
    changed_.wait_for(lock, std::chrono::milliseconds(100), [this] { return is_closing_; });
    if (is_closing_) return;
    ForgetEnded();
    lock.unlock();
    if (const std::string failure = FindFailure(); !failure.empty()) {
      // The failed run may drop the last other handle of the communicator.
      const CommunicatorPtr self = CommunicatorPtr::TryShare(this);
      if (self) self->Break(failure);
      return;
    }
    lock.lock();
  }
}
OPKIT_INLINE std::string NcclCommunicator::FindFailure() {
  const std::lock_guard lock(mutex_);
  for (const auto& [group, comm] : comms_)
    if (comm)
      if (const ncclResult_t state = StateOf(comm); state != ncclSuccess && state != ncclInProgress)
        return NcclErrorText(comm, state, "NCCL's work on a stream");
  return {};
}

OPKIT_INLINE void NcclCommunicator::MakeGroup(const std::vector<int>& group) {
  {
    const std::lock_guard lock(mutex_);
    if (comms_.contains(group)) return;
  }
  const int first = group.front();
  ncclUniqueId id;
  std::string text;
  if (process() == first) {
    const ncclResult_t result = ncclGetUniqueId(&id);
    text = result == ncclSuccess ? std::string(id.internal, sizeof id.internal)
                                 : NcclErrorText(nullptr, result, "ncclGetUniqueId");
  }
  text = host_->Exchange(text)[Index(first)];
  if (text.size() != sizeof id.internal)
    Throw(ErrorCode::kOperatorFailed, "process ", first, ": ", text);
  std::copy(text.begin(), text.end(), id.internal);
  const auto place = std::find(group.begin(), group.end(), process());
  ncclComm_t comm = nullptr;
  const std::lock_guard lock(mutex_);
  if (place != group.end()) {
    const CUDADeviceGuard guard(device_);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    try {
      const ncclResult_t result =
          ncclCommInitRankConfig(&comm, static_cast<int>(group.size()), id,
                                 static_cast<int>(place - group.begin()), &config);
      Await(comm, result, "ncclCommInitRankConfig");
      token_.Resize({1}, DType::kFloat32);
      token_.raw_mutable_data();
    } catch (const Error& error) {
      if (comm) ncclCommAbort(comm);
      BreakHost(*host_, StrCat("process ", process(), " ended the run: ", error.what()));
      throw;
    }
  }
  comms_.emplace(group, comm);
  if (comm && !watcher_.joinable()) watcher_ = std::thread([this] { Watch(); });
}

OPKIT_INLINE void NcclCommunicator::Await(ncclComm_t comm, ncclResult_t result,
                                          std::string_view what) {
  constexpr int kYields = 1000;  // what another process does next often ends the wait
  for (int polls = 0; result == ncclInProgress; ++polls) {
    if (is_failing_.load(std::memory_order_relaxed)) Throw(ErrorCode::kCancelled, broken());
    if (polls < kYields)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    result = StateOf(comm);
  }
  if (result != ncclSuccess) Throw(ErrorCode::kOperatorFailed, NcclErrorText(comm, result, what));
}

OPKIT_INLINE void NcclCommunicator::DoStart(IntrusivePtr<Communication> communication,
                                            const std::vector<int>& group) {
  const Communication& c = *communication;
  if (!c.stream)
    Throw(ErrorCode::kFailedPrecondition, c.node(),
          " has buffers of the CPU, but a communicator on NCCL takes those of ", ToString(device_));
  if (c.completion) {
    const std::lock_guard lock(pending_mutex_);
    ForgetEnded();
    pending_.push_back(c.completion);
  }
  changed_.notify_one();
  const std::lock_guard lock(mutex_);
  const auto found = comms_.find(group);
  if (is_failing_) return;  // the caller calls FailPending
  if (found == comms_.end() || !found->second)
    Throw(ErrorCode::kFailedPrecondition, c.node(), " has a group of ", group.size(),
          " processes for which NCCL has no communicator here; Compile makes those of its graph, "
          "and MakeGroup others");
  ncclComm_t const comm = found->second;
  Await(comm, StateOf(comm), "an earlier communication");
  ncclResult_t result = ncclGroupStart();
  if (result == ncclSuccess) {
    result = Put(c, group, comm);
    const ncclResult_t ended = ncclGroupEnd();
    if (result == ncclSuccess) result = ended;
  }
  Await(comm, result, ToString(c.plan().kind));
}

OPKIT_INLINE ncclResult_t NcclCommunicator::Put(const Communication& c,
                                                const std::vector<int>& group, ncclComm_t comm) {
  const CommunicationPlan& plan = c.plan();
  const auto stream = static_cast<cudaStream_t>(c.stream);
  const int n = static_cast<int>(group.size());
  const auto rank_of = [&](int process) {
    return static_cast<int>(std::find(group.begin(), group.end(), process) - group.begin());
  };
  const int root = rank_of(plan.process), self = rank_of(process());
  const size_t count = Index(c.count);
  ncclResult_t failure = ncclSuccess;
  const auto call = [&](ncclResult_t result) {
    if (failure == ncclSuccess && result != ncclInProgress) failure = result;
  };
  // Blocks that NCCL only moves are bytes.
  const size_t bytes = c.dtype == DType::kUndefined ? 0 : Index(c.bytes());
  const auto send = [&](int block, int to) {
    call(ncclSend(static_cast<const char*>(c.input) + Index(block) * bytes, bytes, ncclUint8, to,
                  comm, stream));
  };
  const auto receive = [&](int block, int from) {
    call(ncclRecv(static_cast<char*>(c.output) + Index(block) * bytes, bytes, ncclUint8, from, comm,
                  stream));
  };
  switch (plan.kind) {
    case CommunicationKind::kSend:
      send(0, root);
      break;
    case CommunicationKind::kReceive:
      receive(0, root);
      break;
    case CommunicationKind::kAllReduce: {
      const NcclReduction r = NcclReductionOf(plan, c.dtype);
      call(ncclAllReduce(c.input, c.output, count, r.type, r.op, comm, stream));
      for (const Communication::Block& block : c.more)
        call(ncclAllReduce(block.input, block.output, Index(block.count), r.type, r.op, comm,
                           stream));
      break;
    }
    case CommunicationKind::kReduce: {
      const NcclReduction r = NcclReductionOf(plan, c.dtype);
      call(ncclReduce(c.input, c.output, count, r.type, r.op, root, comm, stream));
      break;
    }
    case CommunicationKind::kReduceScatter: {
      const NcclReduction r = NcclReductionOf(plan, c.dtype);
      call(ncclReduceScatter(c.input, c.output, count, r.type, r.op, comm, stream));
      break;
    }
    case CommunicationKind::kBroadcast:
      call(ncclBroadcast(c.input, c.output, bytes, ncclUint8, root, comm, stream));
      break;
    case CommunicationKind::kAllGather:
      call(ncclAllGather(c.input, c.output, bytes, ncclUint8, comm, stream));
      break;
    case CommunicationKind::kGather:
      send(0, root);
      for (int i = 0; self == root && i < n; ++i) receive(i, i);
      break;
    case CommunicationKind::kScatter:
      for (int i = 0; self == root && i < n; ++i) send(i, i);
      receive(0, root);
      break;
    case CommunicationKind::kAllToAll:
      for (int i = 0; i < n; ++i) {
        send(i, i);
        receive(i, i);
      }
      break;
    case CommunicationKind::kBarrier:
      call(ncclAllReduce(token_.raw_data(), token_.raw_mutable_data(), 1, ncclFloat32, ncclMax,
                         comm, stream));
      break;
  }
  return failure;
}

OPKIT_INLINE void NcclCommunicator::FailPending(const std::exception_ptr& error) noexcept {
  is_failing_ = true;
  std::vector<IntrusivePtr<EventState>> failed;
  {
    const std::lock_guard lock(pending_mutex_);
    failed.swap(pending_);
  }
  // Before the abort, after which the streams go on and events would succeed.
  for (const auto& event : failed) event->Complete(error);
  const std::lock_guard lock(mutex_);
  for (const auto& [group, comm] : comms_)
    if (comm) ncclCommAbort(comm);
  comms_.clear();
}

}  // namespace detail

OPKIT_INLINE CommunicatorPtr MakeNcclCommunicator(const CommunicatorPtr& host,
                                                  const NcclOptions& options) {
  const int devices = CUDADeviceCount();
  const int index = options.device >= 0 ? options.device : host->process() % (std::max)(devices, 1);
  const Device device{DeviceType::kCUDA, index};
  CheckCUDADevice(device);
  return detail::NcclCommunicator::Make(host->Duplicate(), device, options.deadline);
}

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_NCCL_IMPL_COMMUNICATOR_IPP_
