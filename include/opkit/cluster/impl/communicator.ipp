// Definitions of Communicator's members: the table of communicators, the turns of collectives, and
// the end of a broken communicator.
#ifndef OPKIT_CLUSTER_IMPL_COMMUNICATOR_IPP_
#define OPKIT_CLUSTER_IMPL_COMMUNICATOR_IPP_

#include <utility>

#include "opkit/base/error.hpp"
#include "opkit/cluster/communicator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The communicators of the program, by number.
struct CommunicatorTable {
  std::mutex mutex;
  int64_t last = 0;
  std::map<int64_t, Communicator*> all;
};
OPKIT_IMAGE_LOCAL inline CommunicatorTable& Communicators() {
  static auto* table = new CommunicatorTable;  // communicators may be static objects
  return *table;
}
inline int64_t AddCommunicator(Communicator* communicator) {
  CommunicatorTable& table = Communicators();
  const std::lock_guard lock(table.mutex);
  table.all.emplace(++table.last, communicator);
  return table.last;
}

}  // namespace detail

OPKIT_INLINE Communicator::Communicator() : number_(detail::AddCommunicator(this)) {}
OPKIT_INLINE Communicator::~Communicator() {
  detail::CommunicatorTable& table = detail::Communicators();
  const std::lock_guard lock(table.mutex);
  table.all.erase(number_);
}
OPKIT_INLINE CommunicatorPtr Communicator::Find(int64_t number) {
  detail::CommunicatorTable& table = detail::Communicators();
  const std::lock_guard lock(table.mutex);
  const auto found = table.all.find(number);
  return found == table.all.end() ? CommunicatorPtr() : CommunicatorPtr::TryShare(found->second);
}

OPKIT_INLINE Device Communicator::device() const { return {}; }
OPKIT_INLINE void Communicator::MakeGroup(const std::vector<int>&) {}

OPKIT_INLINE std::exception_ptr Communicator::BrokenError() const {
  return std::make_exception_ptr(Error(ErrorCode::kCancelled, broken_));
}
OPKIT_INLINE std::string Communicator::broken() const {
  const std::lock_guard lock(mutex_);
  return broken_;
}

OPKIT_INLINE void Communicator::StartNow(const detail::IntrusivePtr<Communication>& communication,
                                         const std::vector<int>& group) {
  DoStart(communication, group);
  std::unique_lock lock(mutex_);
  if (broken_.empty()) return;
  const std::exception_ptr error = BrokenError();
  lock.unlock();
  FailPending(error);  // SetBroken may have called it before DoStart
}
OPKIT_INLINE void Communicator::Start(const detail::IntrusivePtr<Communication>& communication) {
  const CommunicationPlan& plan = communication->plan();
  const bool is_message =
      plan.kind == CommunicationKind::kSend || plan.kind == CommunicationKind::kReceive;
  std::unique_lock lock(mutex_);
  if (!broken_.empty()) std::rethrow_exception(BrokenError());
  while (std::ssize(everyone_) < processes())
    everyone_.push_back(static_cast<int>(everyone_.size()));
  const std::vector<int>& group = plan.group.empty() ? everyone_ : plan.group;
  if (is_message) {
    communication->message.number = run_;
    lock.unlock();
    return StartNow(communication, group);
  }
  Turns& turns = turns_[group];
  const int64_t turn = plan.channel < 0
                           ? turns.last++
                           : turns.runs[plan.channel]++ * plan.collectives + plan.channel;
  if (communication->stream) {
    if (turn != turns.next)
      Throw(ErrorCode::kFailedPrecondition, communication->node(),
            " starts before a collective that precedes it in the graph");
    ++turns.next;
    lock.unlock();
    return StartNow(communication, group);
  }
  turns.waiting.emplace(turn, communication);
  // The collectives of a group keep their order because only one thread starts them at any time. A
  // collective that ends at once may start the next one inside this loop.
  if (turns.is_starting) return;
  turns.is_starting = true;
  while (!turns.waiting.empty() && turns.waiting.begin()->first == turns.next) {
    const auto next = turns.waiting.extract(turns.waiting.begin()).mapped();
    ++turns.next;
    if (!broken_.empty()) {
      const std::exception_ptr error = BrokenError();
      lock.unlock();
      next->Finish(error);
    } else {
      lock.unlock();
      try {
        StartNow(next, group);
      } catch (...) {
        next->Finish(std::current_exception());
      }
    }
    lock.lock();
  }
  turns.is_starting = false;
}

OPKIT_INLINE bool Communicator::SetBroken(const std::string& reason) noexcept {
  std::vector<detail::IntrusivePtr<Communication>> waiting;
  std::exception_ptr error;
  CommunicatorPtr follower;
  {
    const std::lock_guard lock(mutex_);
    if (!broken_.empty()) return false;
    broken_ = reason;
    error = BrokenError();
    if (follower_) follower = CommunicatorPtr::TryShare(follower_);
    for (auto& [group, turns] : turns_) {
      for (auto& [turn, communication] : turns.waiting) waiting.push_back(communication);
      turns.waiting.clear();
    }
  }
  for (const auto& communication : waiting) communication->Finish(error);
  FailPending(error);
  if (follower) follower->SetBroken(reason);
  return true;
}
OPKIT_INLINE void Communicator::Follow(Communicator& host) {
  {
    const std::lock_guard lock(host.mutex_);
    host.follower_ = this;
  }
  if (const std::string reason = host.broken(); !reason.empty()) SetBroken(reason);
}
OPKIT_INLINE void Communicator::Unfollow(Communicator& host) noexcept {
  const std::lock_guard lock(host.mutex_);
  host.follower_ = nullptr;
}
OPKIT_INLINE void Communicator::BreakHost(Communicator& host, const std::string& reason) noexcept {
  if (host.SetBroken(reason)) host.TellBroken(reason);
}
OPKIT_INLINE void Communicator::Break(const std::string& reason) noexcept {
  const std::string text = StrCat("process ", process(), " ended the run: ", reason);
  if (SetBroken(text)) TellBroken(text);
}
OPKIT_INLINE void Communicator::BeginRun(bool waits) {
  if (waits && Communication::IsFinishing())
    Throw(
        ErrorCode::kFailedPrecondition,
        "a callback of an event waits for a run of several processes, on a thread that ends their "
        "messages; call RunAsync there, which does not wait");
  const std::lock_guard lock(mutex_);
  if (has_failed_)
    Throw(ErrorCode::kCancelled, "an earlier run of the plan failed; compile the graph again on ",
          "every process to go on. ", broken_);
  if (is_running_)
    Throw(ErrorCode::kFailedPrecondition,
          "two executors of a plan of several processes run at once; the plan runs once at a time "
          "on each process: wait for the other run, or compile a plan for each executor");
  is_running_ = true;
  ++run_;
}
OPKIT_INLINE void Communicator::EndRun() noexcept {
  const std::lock_guard lock(mutex_);
  is_running_ = false;
}
OPKIT_INLINE void Communicator::RecordRun(uint64_t invocation) const noexcept {
  if (!detail::g_record_message) return;
  ProfileMessage run;
  run.plan = plan_;
  {
    const std::lock_guard lock(mutex_);
    run.number = run_;
  }
  detail::g_record_message(invocation, run);
}
OPKIT_INLINE void Communicator::Break(const std::exception_ptr& error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& failure) {
    Break(failure.what());
  } catch (...) {
    Break("an operator threw an unknown exception");
  }
}
OPKIT_INLINE std::exception_ptr Communicator::RunFailed(const std::exception_ptr& error) noexcept {
  {
    const std::lock_guard lock(mutex_);
    has_failed_ = true;
  }
  try {
    try {
      std::rethrow_exception(error);
    } catch (const Error& failure) {
      const std::lock_guard lock(mutex_);
      // The node that noticed that the communicator broke has nothing to add.
      if (!broken_.empty() && failure.message().ends_with(broken_))
        return std::make_exception_ptr(Error(failure.code(), failure.message()));
      throw;
    }
  } catch (...) {
    Break(error);
    try {
      detail::RethrowInContext(StrCat("on process ", process()));
    } catch (...) {
      return std::current_exception();
    }
  }
}

}}  // namespace opkit

#endif  // OPKIT_CLUSTER_IMPL_COMMUNICATOR_IPP_
