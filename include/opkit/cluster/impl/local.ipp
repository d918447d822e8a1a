// Definitions of LocalCluster: a group in the memory of the program, and its communicators.
#ifndef OPKIT_CLUSTER_IMPL_LOCAL_IPP_
#define OPKIT_CLUSTER_IMPL_LOCAL_IPP_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

#include "opkit/base/algorithm.hpp"
#include "opkit/base/error.hpp"
#include "opkit/base/index.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/cluster/local.hpp"
#include "opkit/cluster/reduce.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

using CommunicationPtr = IntrusivePtr<Communication>;

class LocalCommunicator;

// The simulated network of a cluster, for all groups of its processes. Ends communications later,
// on a thread of its own.
class LocalNetwork final : public RefCounted {
 public:
  using Clock = std::chrono::steady_clock;

  LocalNetwork(int processes, const LinkCost& cost)
      : cost_(cost), senders_(Index(processes)), receivers_(Index(processes)) {
    if (!cost.is_zero()) state_->thread = std::thread([state = state_] { EndAll(*state); });
  }
  ~LocalNetwork() override {
    if (!state_->thread.joinable()) return;
    {
      const std::lock_guard lock(state_->mutex);
      state_->is_stopped = true;
    }
    state_->changed.notify_all();
    // The end of a communication may release the last handle of the network.
    if (state_->thread.get_id() == std::this_thread::get_id())
      state_->thread.detach();
    else
      state_->thread.join();
  }

  // Ends a communication of the group `owner` when the network has carried its bytes; at once
  // without a delay.
  void EndMessage(const void* owner, int from, const CommunicationPtr& send, int to,
                  const CommunicationPtr& receive, std::exception_ptr error) {
    End(owner, {{from, send}, {to, receive}}, {from}, {to}, std::move(error));
  }
  void EndCollective(const void* owner,
                     const std::vector<std::pair<int, CommunicationPtr>>& members,
                     const std::vector<int>& group, std::exception_ptr error) {
    End(owner, members, group, group, std::move(error));
  }
  // Returns the communications of a process that have not ended, which the network then forgets.
  std::vector<CommunicationPtr> Take(const void* owner, int process) {
    std::vector<CommunicationPtr> taken;
    const std::lock_guard lock(state_->mutex);
    std::erase_if(state_->ends, [&](const auto& item) {
      const PendingEnd& end = item.second;
      const bool is_taken = end.owner == owner && end.process == process;
      if (is_taken) taken.push_back(end.communication);
      return is_taken;
    });
    return taken;
  }

 private:
  struct PendingEnd {
    const void* owner;
    int process;
    CommunicationPtr communication;
  };
  struct State final : RefCounted {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_stopped = false;
    std::multimap<Clock::time_point, PendingEnd> ends;
    std::thread thread;
  };

  void End(const void* owner, const std::vector<std::pair<int, CommunicationPtr>>& members,
           const std::vector<int>& senders, const std::vector<int>& receivers,
           std::exception_ptr error) {
    if (cost_.is_zero() || error) {
      for (const auto& [process, communication] : members) communication->Finish(error);
      return;
    }
    const CommunicationPtr& first = members.front().second;
    const CommunicationKind kind = first->plan().kind;
    const int n = static_cast<int>(members.size());
    const double latency = CommunicationSeconds(kind, n, 0, cost_);
    const double busy = CommunicationSeconds(kind, n, first->bytes(), cost_) - latency;
    {
      const std::lock_guard lock(state_->mutex);
      Clock::time_point begin = Clock::now();
      for (const int i : senders) begin = (std::max)(begin, senders_[Index(i)]);
      for (const int i : receivers) begin = (std::max)(begin, receivers_[Index(i)]);
      const auto after = [&](double seconds) {
        return begin +
               std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
      };
      // A message is on its way during the latency: the next one may follow.
      const bool is_message = kind == CommunicationKind::kSend;
      const Clock::time_point is_free = after(is_message ? busy : busy + latency);
      for (const int i : senders) senders_[Index(i)] = is_free;
      for (const int i : receivers) receivers_[Index(i)] = is_free;
      for (const auto& [process, communication] : members)
        state_->ends.insert({after(busy + latency), {owner, process, communication}});
    }
    state_->changed.notify_all();
  }
  static void EndAll(State& state) {
    std::unique_lock lock(state.mutex);
    while (!state.is_stopped || !state.ends.empty()) {
      if (state.ends.empty()) {
        state.changed.wait(lock);
        continue;
      }
      const auto first = state.ends.begin();
      if (first->first > Clock::now() && !state.is_stopped) {
        state.changed.wait_until(lock, Clock::time_point(first->first));
        continue;
      }
      const PendingEnd end = std::move(first->second);
      state.ends.erase(first);
      lock.unlock();
      end.communication->Finish(nullptr);
      lock.lock();
    }
  }

  const LinkCost cost_;
  // For each process, the time when it has sent, and received, what is under way.
  std::vector<Clock::time_point> senders_, receivers_;
  const IntrusivePtr<State> state_ = MakeIntrusive<State>();
};

// The state that the communicators of one group share. Messages and collectives wait here until all
// of their processes have come; the last one copies and reduces.
class LocalGroup final : public RefCounted {
 public:
  LocalGroup(int processes, IntrusivePtr<LocalNetwork> network)
      : network_(std::move(network)),
        children_(Index(processes)),
        members_(Index(processes), nullptr),
        has_left_(Index(processes)),
        texts_(Index(processes)) {}

  int processes() const { return static_cast<int>(members_.size()); }
  // Returns the reason why the group is broken; empty if it is not.
  std::string Join(int process, LocalCommunicator* member) {
    const std::lock_guard lock(mutex_);
    members_[Index(process)] = member;
    return broken_;
  }
  void Leave(int process);
  // Returns the group of the n-th communicator that each process duplicates from this one. Throws
  // kCancelled if the group is broken.
  IntrusivePtr<LocalGroup> Child(int process);
  std::vector<std::string> Exchange(int process, const std::string& text,
                                    FunctionRef<void()> check_broken);
  void Send(int process, CommunicationPtr communication);
  void Receive(int process, CommunicationPtr communication);
  void Collect(int process, CommunicationPtr communication, const std::vector<int>& group);
  // Sets whether a process has returned from its call of LocalCluster::Run.
  void SetReturned(int process, bool has_returned);
  // Breaks the other communicators of the group, and all that were duplicated from them.
  void TellBroken(int process, const std::string& reason) noexcept;
  // Removes the communications of a process and ends them.
  void FailPending(int process, const std::exception_ptr& error) noexcept;

 private:
  // A message's sender, receiver and channel.
  struct Way {
    int from, to;
    int64_t channel;
    friend auto operator<=>(const Way&, const Way&) = default;
  };
  struct Messages {
    std::deque<CommunicationPtr> sends, receives;
  };
  // The processes of a group that have come to a collective.
  struct Meeting {
    std::vector<std::pair<int, CommunicationPtr>> members;  // by process
  };
  struct Collectives {
    std::map<int, int64_t> begun;  // for each process, the collectives that it has begun
    std::map<int64_t, Meeting> open;
  };

  // Throws if a process, which a communication needs, has left the group.
  void CheckPresent(int process) const {
    if (has_left_[Index(process)]) std::rethrow_exception(LeftError(process));
  }
  static std::exception_ptr LeftError(int process) {
    return std::make_exception_ptr(
        Error(ErrorCode::kCancelled,
              StrCat("process ", process, " has left: it has destroyed its communicator; each ",
                     "process calls Run as often as the others")));
  }
  void Deliver(int from, const CommunicationPtr& send, int to, const CommunicationPtr& receive);
  static void Meet(const std::vector<std::pair<int, CommunicationPtr>>& members,
                   const std::vector<int>& group);

  const IntrusivePtr<LocalNetwork> network_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<size_t> children_;  // for each process, the children that it has taken
  std::vector<IntrusivePtr<LocalGroup>> all_children_;
  std::vector<LocalCommunicator*> members_;  // null: not yet there, or gone
  std::vector<char> has_left_;               // for each process
  std::vector<int> returned_;                // processes, in the order in which they returned
  std::string broken_;                       // for processes that have not joined yet
  std::map<Way, Messages> messages_;
  std::map<std::vector<int>, Collectives> collectives_;
  // Exchange: the texts of the round, the processes that came and that left.
  std::vector<std::string> texts_;
  int came_ = 0, left_ = 0;
};

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(IntrusivePtr<LocalGroup> group, int process)
      : group_(std::move(group)), process_(process) {
    if (const std::string reason = group_->Join(process, this); !reason.empty()) SetBroken(reason);
  }
  ~LocalCommunicator() override { group_->Leave(process_); }

  int process() const override { return process_; }
  int processes() const override { return group_->processes(); }
  std::string_view backend() const override { return "local"; }
  CommunicatorPtr Duplicate() override {
    return CommunicatorPtr(new LocalCommunicator(group_->Child(process_), process_));
  }
  std::vector<std::string> Exchange(const std::string& text) override {
    return group_->Exchange(process_, text, [this] {
      if (std::string reason = broken(); !reason.empty()) Throw(ErrorCode::kCancelled, reason);
    });
  }
  void SetReturned(bool has_returned) { group_->SetReturned(process_, has_returned); }
  // Called by the group, for a process that failed.
  void Told(const std::string& reason) noexcept { SetBroken(reason); }

 private:
  void DoStart(CommunicationPtr communication, const std::vector<int>& group) override {
    switch (communication->plan().kind) {
      case CommunicationKind::kSend:
        return group_->Send(process_, std::move(communication));
      case CommunicationKind::kReceive:
        return group_->Receive(process_, std::move(communication));
      default:
        return group_->Collect(process_, std::move(communication), group);
    }
  }
  void TellBroken(const std::string& reason) noexcept override {
    group_->TellBroken(process_, reason);
  }
  void FailPending(const std::exception_ptr& error) noexcept override {
    group_->FailPending(process_, error);
  }

  const IntrusivePtr<LocalGroup> group_;
  const int process_;
};

OPKIT_INLINE void LocalGroup::Leave(int process) {
  std::vector<CommunicationPtr> failed;
  {
    const std::lock_guard lock(mutex_);
    members_[Index(process)] = nullptr;
    has_left_[Index(process)] = 1;
    for (auto& [way, messages] : messages_)
      if (way.from == process || way.to == process)
        for (auto* list : {&messages.sends, &messages.receives}) {
          failed.insert(failed.end(), list->begin(), list->end());
          list->clear();
        }
    for (auto& [group, collectives] : collectives_) {
      if (!Contains(group, process)) continue;
      for (auto& [turn, meeting] : collectives.open)
        for (auto& [member, communication] : meeting.members) failed.push_back(communication);
      collectives.open.clear();
    }
    changed_.notify_all();
  }
  for (const CommunicationPtr& communication : failed) communication->Finish(LeftError(process));
}

OPKIT_INLINE IntrusivePtr<LocalGroup> LocalGroup::Child(int process) {
  const std::lock_guard lock(mutex_);
  if (!broken_.empty()) Throw(ErrorCode::kCancelled, broken_);
  const size_t child = children_[Index(process)]++;
  if (child == all_children_.size()) {
    all_children_.push_back(MakeIntrusive<LocalGroup>(processes(), network_));
    all_children_.back()->returned_ = returned_;
  }
  return all_children_[child];
}

OPKIT_INLINE std::vector<std::string> LocalGroup::Exchange(int process, const std::string& text,
                                                           FunctionRef<void()> check_broken) {
  std::unique_lock lock(mutex_);
  const auto wait_until = [&](auto done) {
    while (!done()) {
      check_broken();
      // Names the cause: after it, others that waited may return and leave.
      if (!returned_.empty())
        Throw(ErrorCode::kCancelled, "process ", returned_[0],
              " has returned from LocalCluster::Run, and process ", process,
              " waits for it to compile the same graph");
      for (int i = 0; i < processes(); ++i) CheckPresent(i);
      changed_.wait(lock);
    }
  };
  check_broken();
  wait_until([this] { return left_ == 0; });  // a process may come again before others have left
  texts_[Index(process)] = text;
  if (++came_ == processes()) {
    left_ = processes();
    changed_.notify_all();
  }
  try {
    wait_until([this] { return left_ > 0; });
  } catch (...) {
    --came_;
    throw;
  }
  std::vector<std::string> texts = texts_;
  if (--left_ == 0) {
    came_ = 0;
    changed_.notify_all();
  }
  return texts;
}

OPKIT_INLINE void LocalGroup::SetReturned(int process, bool has_returned) {
  const std::lock_guard lock(mutex_);
  // Between two calls of LocalCluster::Run a process passes over children that it did not take.
  if (!has_returned) children_[Index(process)] = all_children_.size();
  if (has_returned)
    returned_.push_back(process);
  else
    std::erase(returned_, process);
  changed_.notify_all();
  for (const auto& child : all_children_) child->SetReturned(process, has_returned);
}

OPKIT_INLINE void LocalGroup::Send(int process, CommunicationPtr communication) {
  const int to = communication->plan().process;
  CommunicationPtr receive;
  {
    const std::lock_guard lock(mutex_);
    CheckPresent(to);
    Messages& messages = messages_[{process, to, communication->plan().channel}];
    if (messages.receives.empty()) return messages.sends.push_back(std::move(communication));
    receive = std::move(messages.receives.front());
    messages.receives.pop_front();
  }
  Deliver(process, communication, to, receive);
}
OPKIT_INLINE void LocalGroup::Receive(int process, CommunicationPtr communication) {
  const int from = communication->plan().process;
  CommunicationPtr send;
  {
    const std::lock_guard lock(mutex_);
    CheckPresent(from);
    Messages& messages = messages_[{from, process, communication->plan().channel}];
    if (messages.sends.empty()) return messages.receives.push_back(std::move(communication));
    send = std::move(messages.sends.front());
    messages.sends.pop_front();
  }
  Deliver(from, send, process, communication);
}
OPKIT_INLINE void LocalGroup::Deliver(int from, const CommunicationPtr& send, int to,
                                      const CommunicationPtr& receive) {
  std::exception_ptr error;
  try {
    void* into = receive->output;
    if (receive->plan().is_dynamic)
      into = receive->Allocate(send->dtype, send->shape);
    else if (send->dtype != receive->dtype || send->count != receive->count)
      Throw(ErrorCode::kInvalidArgument, send->node(), " sends ", send->count, " elements of ",
            ToString(send->dtype), ", but ",
            StrCat(receive->node(), " expects ", receive->count, " of ", ToString(receive->dtype)));
    if (into && send->bytes() > 0)
      std::memcpy(into, send->input, static_cast<size_t>(send->bytes()));
  } catch (...) {
    error = std::current_exception();
  }
  network_->EndMessage(this, from, send, to, receive, std::move(error));
}

OPKIT_INLINE void LocalGroup::Collect(int process, CommunicationPtr communication,
                                      const std::vector<int>& group) {
  std::vector<std::pair<int, CommunicationPtr>> members;
  {
    const std::lock_guard lock(mutex_);
    for (int member : group) CheckPresent(member);
    Collectives& collectives = collectives_[group];
    const int64_t turn = collectives.begun[process]++;
    Meeting& meeting = collectives.open[turn];
    meeting.members.emplace_back(process, std::move(communication));
    if (meeting.members.size() < group.size()) return;
    std::sort(meeting.members.begin(), meeting.members.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    members = std::move(meeting.members);
    collectives.open.erase(turn);
  }
  std::exception_ptr error;
  try {
    Meet(members, group);
  } catch (...) {
    error = std::current_exception();
  }
  network_->EndCollective(this, members, group, std::move(error));
}

// Computes a collective of all of its members, which are in the order of the processes.
OPKIT_INLINE void LocalGroup::Meet(const std::vector<std::pair<int, CommunicationPtr>>& members,
                                   const std::vector<int>& group) {
  const CommunicationPtr& first = members.front().second;
  const CommunicationPlan& plan = first->plan();
  for (const auto& [process, member] : members)
    if (member->plan().kind != plan.kind || member->dtype != first->dtype ||
        member->count != first->count || member->plan().reduction != plan.reduction)
      Throw(ErrorCode::kInvalidArgument, "processes meet in different collectives: ", first->node(),
            " with ", StrCat(first->count, " elements of ", ToString(first->dtype), ", and "),
            member->node(), " with ",
            StrCat(member->count, " elements of ", ToString(member->dtype)));
  const auto root = std::find(group.begin(), group.end(), plan.process) - group.begin();
  const size_t bytes = static_cast<size_t>(first->bytes());
  const size_t n = members.size();
  const auto in = [&](size_t member, size_t block) {
    return static_cast<const char*>(members[member].second->input) + block * bytes;
  };
  const auto out = [&](size_t member, size_t block) {
    return static_cast<char*>(members[member].second->output) + block * bytes;
  };
  const auto copy = [&](const void* from, void* to) {
    if (bytes > 0 && from != to) std::memmove(to, from, bytes);
  };
  // Returns the reduction of the blocks number `block` of all members, in memory of its own, since
  // a member's output may be another member's input.
  std::vector<char> sum;
  const auto reduce = [&](size_t block) {
    sum.assign(in(0, block), in(0, block) + bytes);
    for (size_t i = 1; i < n; ++i)
      ReduceInto(plan.reduction, first->dtype, first->count, in(i, block), sum.data());
    return static_cast<const void*>(sum.data());
  };
  switch (plan.kind) {
    case CommunicationKind::kAllReduce: {
      const void* total = reduce(0);
      for (size_t i = 0; i < n; ++i) copy(total, out(i, 0));
      return;
    }
    case CommunicationKind::kReduce:
      return copy(reduce(0), out(Index(root), 0));
    case CommunicationKind::kBroadcast:
      for (size_t i = 0; i < n; ++i) copy(in(Index(root), 0), out(i, 0));
      return;
    case CommunicationKind::kAllGather:
      for (size_t i = 0; i < n; ++i)
        for (size_t block = 0; block < n; ++block) copy(in(block, 0), out(i, block));
      return;
    case CommunicationKind::kGather:
      for (size_t block = 0; block < n; ++block) copy(in(block, 0), out(Index(root), block));
      return;
    case CommunicationKind::kReduceScatter:
      for (size_t i = 0; i < n; ++i) copy(reduce(i), out(i, 0));
      return;
    case CommunicationKind::kScatter:
      for (size_t i = 0; i < n; ++i) copy(in(Index(root), i), out(i, 0));
      return;
    case CommunicationKind::kAllToAll:
      for (size_t i = 0; i < n; ++i)
        for (size_t block = 0; block < n; ++block) copy(in(block, i), out(i, block));
      return;
    case CommunicationKind::kBarrier:
    case CommunicationKind::kSend:
    case CommunicationKind::kReceive:
      return;
  }
}

OPKIT_INLINE void LocalGroup::TellBroken(int process, const std::string& reason) noexcept {
  std::vector<IntrusivePtr<LocalCommunicator>> others;
  std::vector<IntrusivePtr<LocalGroup>> children;
  {
    const std::lock_guard lock(mutex_);
    if (broken_.empty()) broken_ = reason;
    children = all_children_;
    for (int i = 0; i < processes(); ++i)
      if (i != process && members_[Index(i)])
        if (auto other = IntrusivePtr<LocalCommunicator>::TryShare(members_[Index(i)]))
          others.push_back(std::move(other));
  }
  for (const auto& other : others) other->Told(reason);
  for (const auto& child : children) child->TellBroken(-1, reason);
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

OPKIT_INLINE void LocalGroup::FailPending(int process, const std::exception_ptr& error) noexcept {
  std::vector<CommunicationPtr> failed;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [way, messages] : messages_) {
      auto& own = way.from == process ? messages.sends : messages.receives;
      if (way.from != process && way.to != process) continue;
      failed.insert(failed.end(), own.begin(), own.end());
      own.clear();
    }
    for (auto& [group, collectives] : collectives_)
      for (auto& [turn, meeting] : collectives.open)
        std::erase_if(meeting.members, [&](const auto& member) {
          if (member.first == process) failed.push_back(member.second);
          return member.first == process;
        });
  }
  for (const CommunicationPtr& communication : network_->Take(this, process))
    failed.push_back(communication);
  for (const CommunicationPtr& communication : failed) communication->Finish(error);
}

}  // namespace detail

OPKIT_INLINE LocalCluster::LocalCluster(int processes, const LinkCost& delay) {
  if (processes < 1 || processes > 4096)
    Throw(ErrorCode::kInvalidArgument, "a LocalCluster of ", processes,
          " processes; expected 1 to 4096");
  for (const double seconds : {delay.latency, delay.seconds_per_byte, delay.reduction_per_byte})
    if (!(seconds >= 0 && seconds < 3600))
      Throw(ErrorCode::kInvalidArgument, "a delay of ", seconds,
            " seconds; expected 0 or more, and less than an hour");
  const auto group = detail::MakeIntrusive<detail::LocalGroup>(
      processes, detail::MakeIntrusive<detail::LocalNetwork>(processes, delay));
  for (int process = 0; process < processes; ++process)
    communicators_.emplace_back(new detail::LocalCommunicator(group, process));
}
OPKIT_INLINE LocalCluster::~LocalCluster() = default;

OPKIT_INLINE const CommunicatorPtr& LocalCluster::communicator(int process) const {
  if (process < 0 || process >= processes())
    Throw(ErrorCode::kOutOfRange, "there is no process ", process, ": the cluster has ",
          processes());
  return communicators_[detail::Index(process)];
}

OPKIT_INLINE void LocalCluster::Run(FunctionRef<void(const CommunicatorPtr&)> body) {
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  const auto set_returned = [](const CommunicatorPtr& communicator, bool has_returned) {
    static_cast<detail::LocalCommunicator&>(*communicator).SetReturned(has_returned);
  };
  for (const CommunicatorPtr& communicator : communicators_)
    threads.emplace_back([&, communicator] {
      // By this name GatherProfiles finds the process's spans.
      detail::SetCurrentThreadName(StrCat("process ", communicator->process()).c_str());
      try {
        body(communicator);
      } catch (...) {
        {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
        communicator->Break(std::current_exception());
      }
      set_returned(communicator, true);
    });
  for (std::thread& thread : threads) thread.join();
  for (const CommunicatorPtr& communicator : communicators_) set_returned(communicator, false);
  if (first) std::rethrow_exception(first);
}

}}  // namespace opkit

#endif  // OPKIT_CLUSTER_IMPL_LOCAL_IPP_
