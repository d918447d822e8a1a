// Definitions of MpiProgress's members.
#ifndef OPKIT_BACKENDS_MPI_IMPL_PROGRESS_IPP_
#define OPKIT_BACKENDS_MPI_IMPL_PROGRESS_IPP_

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <tuple>
#include <utility>

#include "opkit/backends/mpi/progress.hpp"
#include "opkit/base/error.hpp"
#include "opkit/base/index.hpp"
#include "opkit/base/platform.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A control message is one of these letters; for kBroken the name of the communicator and a line
// end; and a reason.
inline constexpr char kBrokenLetter = 'B', kFailedLetter = 'F', kLeftLetter = 'L';

OPKIT_INLINE MpiProgress::MpiProgress(MPI_Comm control, int64_t deadline_ns)
    : deadline_ns_(deadline_ns) {
  CheckMpi(MPI_Comm_dup(control, &control_), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(control_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(control_, &process_);
  MPI_Comm_size(control_, &processes_);
  int* max_tag = nullptr;
  int is_set = 0;
  MPI_Comm_get_attr(control_, MPI_TAG_UB, &max_tag, &is_set);
  if (is_set) max_tag_ = *max_tag;
  // Processes of one machine see each other's ends: their host's name and the numbers of their
  // namespaces of processes are the same.
  struct Place {
    char name[256] = {};
    int64_t pid = 0;
  } mine;
  gethostname(mine.name, 100);
  mine.name[100] = ' ';
  if (readlink("/proc/self/ns/pid", mine.name + 101, 100) < 0) mine.name[101] = 0;
  mine.pid = getpid();
  std::vector<Place> places(Index(processes_));
  CheckMpi(
      MPI_Allgather(&mine, sizeof mine, MPI_BYTE, places.data(), sizeof mine, MPI_BYTE, control_),
      "MPI_Allgather");
  for (const Place& place : places)
    pids_.push_back(std::memcmp(place.name, mine.name, sizeof mine.name) == 0 ? place.pid : 0);
  const int64_t here = processes_ - std::count(pids_.begin(), pids_.end(), 0);
  is_one_machine_ = here == processes_;
  shares_cores_ = here > static_cast<int64_t>(std::thread::hardware_concurrency());
  thread_ = std::thread([this] { Run(); });
}
OPKIT_INLINE MpiProgress::~MpiProgress() { OPKIT_ASSERT(!thread_.joinable()); }

OPKIT_INLINE void MpiProgress::Add(MpiWork work) {
  std::unique_lock lock(mutex_);
  if (is_closing_) {
    lock.unlock();
    return Abandon(std::move(work),
                   std::make_exception_ptr(Error(ErrorCode::kCancelled, "MPI has ended")));
  }
  added_.push_back(std::move(work));
  is_busy_.store(true, std::memory_order_relaxed);
  lock.unlock();
  changed_.notify_one();
}
OPKIT_INLINE void MpiProgress::Abandon(MpiWork work, const std::exception_ptr& error) {
  struct Buffers final : RefCounted {
    std::vector<Tensor> tensors;
    IntrusivePtr<RefCounted> more;
  };
  if (work.communication) {
    auto buffers = MakeIntrusive<Buffers>();
    buffers->tensors = work.communication->TakeBuffers();
    buffers->more = std::move(work.memory);
    work.memory = std::move(buffers);
    work.Cancel();
  }
  work.Finish(error);
  work.communication = {};
  work.awaits_header = false;
  const std::lock_guard lock(mutex_);
  newly_abandoned_.push_back(std::move(work));
}
OPKIT_INLINE void MpiProgress::Wake() {
  {
    const std::lock_guard lock(mutex_);
    is_woken_ = true;
  }
  changed_.notify_one();
}

OPKIT_INLINE void MpiProgress::Join(const std::string& path, MpiMember* communicator) {
  const std::lock_guard lock(mutex_);
  communicators_.emplace(path, communicator);
}
OPKIT_INLINE void MpiProgress::Leave(const std::string& path) {
  const std::lock_guard lock(mutex_);
  communicators_.erase(path);
}
OPKIT_INLINE std::string MpiProgress::TakeBroken(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto found = broken_.find(path);
  return found == broken_.end() ? failed_ : broken_.extract(found).mapped();
}
OPKIT_INLINE void MpiProgress::TellBroken(const std::string& path,
                                          const std::string& reason) noexcept {
  Tell(StrCat(kBrokenLetter, path, "\n", reason));
}
OPKIT_INLINE void MpiProgress::Tell(std::string text) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return;
    Told& told = told_.emplace_back(Told{std::move(text), {}});
    for (int process = 0; process < processes_; ++process)
      if (process != process_)
        MPI_Isend(told.text.data(), static_cast<int>(told.text.size()), MPI_CHAR, process, 0,
                  control_, &told.requests.emplace_back(MPI_REQUEST_NULL));
  }
  changed_.notify_one();
}

OPKIT_INLINE void MpiProgress::BreakAll(const std::string& reason) noexcept {
  std::vector<std::string> paths;
  {
    const std::lock_guard lock(mutex_);
    failed_ = reason;
    for (const auto& [path, communicator] : communicators_) paths.push_back(path);
  }
  for (const std::string& path : paths) Break(path, reason);
}
OPKIT_INLINE void MpiProgress::Break(const std::string& path, const std::string& reason) noexcept {
  IntrusivePtr<MpiMember> communicator;
  {
    const std::lock_guard lock(mutex_);
    const auto found = communicators_.find(path);
    if (found == communicators_.end()) {
      broken_.emplace(path, reason);
      return;
    }
    communicator = IntrusivePtr<MpiMember>::TryShare(found->second);
  }
  // Outside the lock: the end of work may begin other work.
  if (communicator) communicator->BreakHere(reason);
}

OPKIT_INLINE void MpiProgress::Run() noexcept {
  int64_t progressed_ns = MonotonicNs();
  while (true) {
    bool is_closing, is_idle = false;
    {
      std::unique_lock lock(mutex_);
      if (active_.empty() && added_.empty() && told_.empty() && !is_woken_ && !is_closing_) {
        is_idle = !AwaitWork(lock, progressed_ns);
        if (!is_idle) progressed_ns = looked_ns_ = MonotonicNs();
      }
      if (!added_.empty()) progressed_ns = MonotonicNs();
      for (MpiWork& work : added_) active_.push_back(std::move(work));
      added_.clear();
      for (MpiWork& work : newly_abandoned_) abandoned_.push_back(std::move(work));
      newly_abandoned_.clear();
      is_woken_ = false;
      is_closing = is_closing_;
    }
    bool progressed = TestAll();
    ReadControl();
    progressed |= TestTold();
    const int64_t now = MonotonicNs();
    if (is_closing) {
      if (active_.empty() && (is_told() || now > closing_ns_)) return;
      for (MpiWork& work : active_) Abandon(std::move(work), closed_);
      active_.clear();
    }
    if (progressed)
      progressed_ns = now;
    else if (!is_idle)
      Pause(now, progressed_ns);
  }
}
OPKIT_INLINE bool MpiProgress::AwaitWork(std::unique_lock<std::mutex>& lock,
                                         int64_t progressed_ns) {
  is_busy_.store(false, std::memory_order_relaxed);
  const auto has_work = [this] {
    return !added_.empty() || !told_.empty() || is_woken_ || is_closing_;
  };
  if (is_one_machine_) {
    changed_.wait(lock, has_work);
    return true;
  }
  // A tenth of the time since the last work.
  const int64_t pause_ns =
      std::clamp<int64_t>((MonotonicNs() - progressed_ns) / 10, 100'000, 100'000'000);
  return changed_.wait_for(lock, std::chrono::nanoseconds(pause_ns), has_work);
}

OPKIT_INLINE bool MpiProgress::TestAll() {
  bool progressed = false;
  std::vector<std::tuple<MpiLink*, int, int64_t>> headers;  // awaited by earlier work
  for (auto work = active_.begin(); work != active_.end();) {
    if (const std::exception_ptr failure = work->link->failure()) {
      Abandon(std::move(*work), failure);
    } else {
      std::exception_ptr error;
      try {
        if (work->awaits_header) {
          const CommunicationPlan& plan = work->communication->plan();
          const std::tuple way(work->link.get(), plan.process, plan.channel);
          const bool waits = std::find(headers.begin(), headers.end(), way) != headers.end();
          const bool has_ended = !waits && work->Test();
          if (work->awaits_header) headers.push_back(way);
          if (!has_ended) {
            ++work;
            continue;
          }
        } else if (!work->Test()) {
          ++work;
          continue;
        }
      } catch (...) {
        error = std::current_exception();
      }
      if (error)
        Abandon(std::move(*work), error);
      else
        work->Finish(nullptr);
    }
    work = active_.erase(work);
    progressed = true;
  }
  // Memory that MPI has let go.
  std::erase_if(abandoned_, [](MpiWork& work) {
    return std::ranges::all_of(work.requests, [](MPI_Request& request) {
      int has_ended = 1;
      if (request != MPI_REQUEST_NULL) MPI_Test(&request, &has_ended, MPI_STATUS_IGNORE);
      return has_ended != 0;
    });
  });
  return progressed;
}

OPKIT_INLINE bool MpiProgress::TestTold() {
  const std::lock_guard lock(mutex_);
  const size_t before = told_.size();
  told_.remove_if([](Told& told) {
    int has_ended = 1;
    MPI_Testall(static_cast<int>(told.requests.size()), told.requests.data(), &has_ended,
                MPI_STATUSES_IGNORE);
    return has_ended != 0;
  });
  return told_.size() != before;
}
OPKIT_INLINE bool MpiProgress::is_told() {
  const std::lock_guard lock(mutex_);
  return told_.empty();
}

OPKIT_INLINE void MpiProgress::ReadControl() {
  MPI_Message message;
  MPI_Status status;
  int has_come = 0;
  if (MPI_Improbe(MPI_ANY_SOURCE, 0, control_, &has_come, &message, &status) != MPI_SUCCESS ||
      !has_come)
    return;
  int size = 0;
  MPI_Get_count(&status, MPI_CHAR, &size);
  std::string text(Index(size), ' ');
  if (MPI_Mrecv(text.data(), size, MPI_CHAR, &message, &status) != MPI_SUCCESS || text.empty())
    return;
  const std::string rest = text.substr(1);
  if (text[0] == kLeftLetter) {
    left_.emplace(status.MPI_SOURCE, MonotonicNs());
  } else if (text[0] == kFailedLetter) {
    BreakAll(rest);
  } else {
    const size_t end = (std::min)(rest.find('\n'), rest.size() - 1);
    Break(rest.substr(0, end), rest.substr(end + 1));
  }
}

// Long pauses between the tests of work end when work is added.
OPKIT_INLINE void MpiProgress::Pause(int64_t now, int64_t progressed_ns) {
  const int64_t idle_ns = now - progressed_ns;
  if (now - looked_ns_ > 100'000'000) {
    looked_ns_ = now;
    LookForProcesses(progressed_ns);
  }
  int64_t bytes = 0;
  for (const MpiWork& work : active_) bytes = (std::max)(bytes, work.bytes);
  // The time that slow memory takes for these bytes.
  const int64_t expected_ns = (std::min<int64_t>)(1'000'000 + 4 * bytes, 1'000'000'000);
  if (idle_ns < 20'000) return;
  if (idle_ns < expected_ns) {
    sched_yield();
    return;
  }
  const int64_t pause_us = (std::min<int64_t>)(50 + (idle_ns - expected_ns) / 10'000, 1'000);
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::microseconds(pause_us),
                    [this] { return !added_.empty() || is_woken_ || is_closing_; });
}

OPKIT_INLINE void MpiProgress::LookForProcesses(int64_t progressed_ns) {
  for (int process = 0; process < processes_; ++process) {
    const int64_t pid = pids_[Index(process)];
    if (pid == 0 || kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH) continue;
    has_dead_process_ = true;
    BreakAll(StrCat("process ", process, " has died (its process ID was ", pid, ")"));
    return;
  }
  for (const auto& [process, since_ns] : left_)
    if (MonotonicNs() - (std::max)(since_ns, progressed_ns) > deadline_ns_ && !active_.empty())
      return BreakAll(StrCat("process ", process,
                             " has left: it has destroyed its MpiCluster; each ",
                             "process calls Run as often as the others"));
}

OPKIT_INLINE void MpiProgress::Close(const std::string& failure) noexcept {
  Tell(failure.empty() ? std::string(1, kLeftLetter) : StrCat(kFailedLetter, failure));
  BreakAll(failure.empty() ? "the MpiCluster of this process has been destroyed" : failure);
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
    closing_ns_ = MonotonicNs() + deadline_ns_;
    closed_ = std::make_exception_ptr(Error(ErrorCode::kCancelled, failed_));
  }
  changed_.notify_one();
  thread_.join();
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  is_open_.store(false, std::memory_order_release);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_MPI_IMPL_PROGRESS_IPP_
