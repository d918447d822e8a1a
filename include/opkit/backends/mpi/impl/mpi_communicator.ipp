// Definitions of MpiCommunicator's members.
#ifndef OPKIT_BACKENDS_MPI_IMPL_MPI_COMMUNICATOR_IPP_
#define OPKIT_BACKENDS_MPI_IMPL_MPI_COMMUNICATOR_IPP_

#include <climits>
#include <utility>

#include "opkit/backends/mpi/mpi_communicator.hpp"
#include "opkit/base/algorithm.hpp"
#include "opkit/base/error.hpp"
#include "opkit/base/index.hpp"
#include "opkit/base/platform.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns how long the thread that starts work tests it before it hands it to the thread of
// MpiProgress. A hand-over costs the wake-up of two threads, of which large blocks take less
// notice.
inline int64_t TestedNs(int64_t bytes) { return bytes <= 1 << 20 ? 100'000 + bytes / 5 : 30'000; }

// Larger blocks of several machines are handed to the thread at once. Over TCP, a test in Open MPI
// ends only when no bytes come or go, which may be at the end of the block.
inline constexpr int64_t kMpiTestedBytes = 16 << 10;

inline bool TestMpiBriefly(MpiWork& work) {
  const MpiProgress& progress = work.link->progress();
  if (!progress.is_one_machine() && (work.bytes > kMpiTestedBytes || progress.is_busy()))
    return false;
  const bool yields = progress.shares_cores();
  for (const int64_t end_ns = MonotonicNs() + TestedNs(work.bytes);;) {
    for (int i = 0; i < 8; ++i)
      if (work.Test()) return true;
    if (MonotonicNs() > end_ns) return false;
    if (yields) std::this_thread::yield();
  }
}

OPKIT_INLINE CommunicatorPtr MpiCommunicator::Make(IntrusivePtr<MpiLink> link) {
  const IntrusivePtr<MpiCommunicator> made(new MpiCommunicator(std::move(link)));
  MpiProgress& progress = made->link_->progress();
  progress.Join(made->link_->path(), made.get());
  const std::string reason = progress.TakeBroken(made->link_->path());
  if (!reason.empty()) made->SetBroken(reason);
  return made;
}
OPKIT_INLINE MpiCommunicator::~MpiCommunicator() { link_->progress().Leave(link_->path()); }

OPKIT_INLINE void MpiCommunicator::CheckNotBroken() const {
  if (std::string reason = broken(); !reason.empty()) Throw(ErrorCode::kCancelled, reason);
}

OPKIT_INLINE void MpiCommunicator::DoStart(IntrusivePtr<Communication> communication,
                                           const std::vector<int>& group) {
  MpiWork work{.link = link_, .communication = std::move(communication)};
  try {
    work.Begin(group);
    // The headers of a channel are taken in their order, on one thread.
    if (!work.awaits_header && TestMpiBriefly(work)) return work.Finish(nullptr);
  } catch (...) {
    return link_->progress().Abandon(std::move(work), std::current_exception());
  }
  link_->progress().Add(std::move(work));
}
OPKIT_INLINE void MpiCommunicator::TellBroken(const std::string& reason) noexcept {
  link_->progress().TellBroken(link_->path(), reason);
}
OPKIT_INLINE void MpiCommunicator::FailPending(const std::exception_ptr& error) noexcept {
  link_->SetFailure(error);
  link_->progress().Wake();
}
OPKIT_INLINE void MpiCommunicator::MakeGroup(const std::vector<int>& group) {
  if (Contains(group, process())) static_cast<void>(link_->CommOf(group));
}

OPKIT_INLINE void MpiCommunicator::Await(std::vector<MPI_Request> requests,
                                         IntrusivePtr<RefCounted> memory) {
  struct Waiter {
    std::mutex mutex;
    std::condition_variable changed;
    bool has_ended = false;
    std::exception_ptr error;
  } waiter;
  MpiWork work{.link = link_, .communication = {}};
  work.requests = std::move(requests);
  work.memory = std::move(memory);
  if (TestMpiBriefly(work)) return;
  work.ended = [&waiter](std::exception_ptr error) {
    const std::lock_guard lock(waiter.mutex);
    waiter.error = std::move(error);
    waiter.has_ended = true;
    waiter.changed.notify_one();
  };
  link_->progress().Add(std::move(work));
  std::unique_lock lock(waiter.mutex);
  waiter.changed.wait(lock, [&] { return waiter.has_ended; });
  if (waiter.error) std::rethrow_exception(waiter.error);
}

OPKIT_INLINE CommunicatorPtr MpiCommunicator::Duplicate() {
  CheckNotBroken();
  struct Made final : RefCounted {
    MPI_Comm comm = MPI_COMM_NULL;
  };
  const auto made = MakeIntrusive<Made>();
  MPI_Request request;
  CheckMpi(MPI_Comm_idup(link_->comm(), &made->comm, &request), "MPI_Comm_idup");
  Await({request}, made);
  return Make(MakeIntrusive<MpiLink>(IntrusivePtr<MpiProgress>(&link_->progress()), made->comm,
                                     StrCat(link_->path(), ".", duplicates_++)));
}

OPKIT_INLINE std::vector<std::string> MpiCommunicator::Exchange(const std::string& text) {
  CheckNotBroken();
  struct Texts final : RefCounted {
    std::string mine;
    int64_t size = 0;
    std::vector<int64_t> sizes;
    std::vector<int> counts, places;
    std::string all;
  };
  const auto texts = MakeIntrusive<Texts>();
  texts->mine = text;
  texts->size = static_cast<int64_t>(text.size());
  texts->sizes.resize(Index(processes()));
  MPI_Request request;
  CheckMpi(MPI_Iallgather(&texts->size, 1, MPI_INT64_T, texts->sizes.data(), 1, MPI_INT64_T,
                          link_->comm(), &request),
           "MPI_Iallgather");
  Await({request}, texts);
  int64_t all = 0;
  for (const int64_t size : texts->sizes) {
    texts->counts.push_back(static_cast<int>(size));
    texts->places.push_back(static_cast<int>(all));
    all += size;
  }
  if (all > INT_MAX)
    Throw(ErrorCode::kUnsupported, "the processes exchange texts of ", all,
          " bytes in all, but processes on MPI exchange at most ", INT_MAX);
  texts->all.resize(Index(all));
  CheckMpi(MPI_Iallgatherv(texts->mine.data(), static_cast<int>(texts->size), MPI_CHAR,
                           texts->all.data(), texts->counts.data(), texts->places.data(), MPI_CHAR,
                           link_->comm(), &request),
           "MPI_Iallgatherv");
  Await({request}, texts);
  std::vector<std::string> result;
  for (int process = 0; process < processes(); ++process)
    result.push_back(texts->all.substr(Index(texts->places[Index(process)]),
                                       Index(texts->counts[Index(process)])));
  return result;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_MPI_IMPL_MPI_COMMUNICATOR_IPP_
