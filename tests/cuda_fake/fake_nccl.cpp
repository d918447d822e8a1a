#include "fake_nccl.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "fake_runtime.hpp"
#include "opkit/cluster/reduce.hpp"

namespace fake_nccl {

using opkit::DType;
using opkit::Reduction;

[[noreturn]] inline void Die(const char* what) {
  std::fprintf(stderr, "fake NCCL: %s\n", what);
  std::abort();
}

enum class Kind { kAllReduce, kReduce, kReduceScatter, kBroadcast, kAllGather, kSend, kReceive };

struct Call {
  Kind kind;
  const void* input;
  void* output;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op = ncclSum;
  int peer = 0;  // or the root
};

inline DType DTypeOf(ncclDataType_t type) {
  constexpr DType kDTypes[] = {DType::kInt8,    DType::kUInt8,   DType::kInt32,   DType::kUInt32,
                               DType::kInt64,   DType::kUInt64,  DType::kFloat16, DType::kFloat32,
                               DType::kFloat64, DType::kBFloat16};
  return kDTypes[type];
}
inline size_t Bytes(const Call& call) {
  return call.count * static_cast<size_t>(opkit::ItemSize(DTypeOf(call.type)));
}

// The ranks of one unique id.
struct Group {
  std::mutex mutex;
  std::condition_variable changed;
  int joined = 0, finalized = 0;
  struct Meeting {
    std::map<int, Call> calls;  // by rank
    bool is_done = false;
  };
  std::map<int, Meeting> meetings;  // by the number of the collective
  struct Message {
    Call call;
    bool is_taken = false;
  };
  std::map<std::pair<int, int>, std::deque<Message*>> messages;  // by sender and receiver
};

// The data that a rank's calls share with its work on streams, which may end later.
struct Rank {
  std::shared_ptr<Group> group;
  int rank, ranks, device;
  bool is_aborted = false;   // with the group's mutex
  int issued = 0, done = 0;  // works, with the group's mutex
  int collectives = 0;       // issued
};

}  // namespace fake_nccl

using namespace fake_nccl;

namespace {

void Compute(std::map<int, Call>& calls) {
  const Call first = calls.begin()->second;
  const int ranks = static_cast<int>(calls.size());
  const size_t bytes = Bytes(first);
  for (const auto& [rank, call] : calls)
    if (call.kind != first.kind || call.count != first.count || call.type != first.type ||
        call.op != first.op || call.peer != first.peer)
      Die("ranks meet in different collectives");
  const auto in = [&](int rank, int block) {
    return static_cast<const char*>(calls[rank].input) + static_cast<size_t>(block) * bytes;
  };
  const auto out = [&](int rank, int block) {
    return static_cast<char*>(calls[rank].output) + static_cast<size_t>(block) * bytes;
  };
  std::vector<std::vector<char>> sums;  // outputs may be inputs
  const auto reduce = [&](int block) {
    std::vector<char> sum(in(0, block), in(0, block) + bytes);
    constexpr Reduction kReductions[] = {Reduction::kSum, Reduction::kProduct, Reduction::kMax,
                                         Reduction::kMin, Reduction::kSum};
    const DType dtype = DTypeOf(first.type);
    const auto count = static_cast<int64_t>(first.count);
    for (int rank = 1; rank < ranks; ++rank)
      opkit::detail::ReduceInto(kReductions[first.op], dtype, count, in(rank, block), sum.data());
    if (first.op == ncclAvg) opkit::detail::DivideElements(dtype, count, ranks, sum.data());
    sums.push_back(std::move(sum));
  };
  const auto copy = [&](const void* from, void* to) {
    if (bytes > 0) std::memmove(to, from, bytes);
  };
  switch (first.kind) {
    case Kind::kAllReduce:
      reduce(0);
      for (int rank = 0; rank < ranks; ++rank) copy(sums[0].data(), out(rank, 0));
      return;
    case Kind::kReduce:
      reduce(0);
      return copy(sums[0].data(), out(first.peer, 0));
    case Kind::kReduceScatter:
      for (int rank = 0; rank < ranks; ++rank) reduce(rank);
      for (int rank = 0; rank < ranks; ++rank)
        copy(sums[static_cast<size_t>(rank)].data(), out(rank, 0));
      return;
    case Kind::kBroadcast:
      for (int rank = 0; rank < ranks; ++rank) copy(in(first.peer, 0), out(rank, 0));
      return;
    case Kind::kAllGather:
      for (int rank = 0; rank < ranks; ++rank)
        for (int block = 0; block < ranks; ++block) copy(in(block, 0), out(rank, block));
      return;
    case Kind::kSend:
    case Kind::kReceive:
      return;
  }
}

// Runs the calls of a group of calls: the messages at once, so that they do not wait for each
// other.
void RunCalls(Rank& self, int number, int collective, const std::vector<Call>& calls) {
  Group& group = *self.group;
  std::unique_lock lock(group.mutex);
  const auto wait = [&](auto is_done) {
    group.changed.wait(lock, [&] { return self.is_aborted || is_done(); });
    return !self.is_aborted;
  };
  if (!wait([&] { return self.done == number; })) return;
  std::deque<Group::Message> sent;
  for (const Call& call : calls)
    if (call.kind == Kind::kSend) {
      sent.push_back({call});
      group.messages[{self.rank, call.peer}].push_back(&sent.back());
    }
  group.changed.notify_all();
  bool goes_on = true;
  for (const Call& call : calls) {
    if (!goes_on) break;
    if (call.kind == Kind::kSend) continue;
    if (call.kind == Kind::kReceive) {
      auto& messages = group.messages[{call.peer, self.rank}];
      goes_on = wait([&] { return !messages.empty(); });
      if (!goes_on) break;
      Group::Message& message = *messages.front();
      messages.pop_front();
      if (Bytes(message.call) != Bytes(call)) Die("a message has another size than is expected");
      if (Bytes(call) > 0) std::memcpy(call.output, message.call.input, Bytes(call));
      message.is_taken = true;
      group.changed.notify_all();
    } else {
      Group::Meeting& meeting = group.meetings[collective++];
      meeting.calls.emplace(self.rank, call);
      if (static_cast<int>(meeting.calls.size()) == self.ranks) {
        Compute(meeting.calls);
        meeting.is_done = true;
        group.changed.notify_all();
      }
      goes_on = wait([&] { return meeting.is_done; });
    }
  }
  for (Group::Message& message : sent) goes_on = goes_on && wait([&] { return message.is_taken; });
  if (!goes_on)  // takes back what no rank has received
    for (auto& [way, messages] : group.messages)
      std::erase_if(messages, [&](const Group::Message* one) {
        for (const Group::Message& message : sent)
          if (&message == one) return true;
        return false;
      });
  ++self.done;
  group.changed.notify_all();
}

std::mutex g_mutex;  // guards g_groups
std::map<int, std::shared_ptr<Group>> g_groups;
std::atomic<int> g_ids, g_communicators, g_calls;
std::atomic<ncclResult_t> g_state = ncclSuccess;

}  // namespace

struct ncclComm {
  std::shared_ptr<Rank> self;
  bool is_finalized = false;
};

namespace {

struct Issued {
  std::shared_ptr<Rank> rank;
  cudaStream_t stream;
  Call call;
};
thread_local int g_depth = 0;
thread_local std::vector<Issued> g_issued;

// Puts the calls of each communicator on its stream.
void Issue() {
  while (!g_issued.empty()) {
    const std::shared_ptr<Rank> self = g_issued.front().rank;
    cudaStream_t const stream = g_issued.front().stream;
    std::vector<Call> calls;
    int collectives = 0;
    std::erase_if(g_issued, [&](const Issued& one) {
      if (one.rank != self) return false;
      if (one.stream != stream) Die("a group has calls on several streams");
      collectives += one.call.kind < Kind::kSend;
      calls.push_back(one.call);
      return true;
    });
    int number = 0, collective = 0;
    {
      const std::lock_guard lock(self->group->mutex);
      number = self->issued++;
      collective = self->collectives;
      self->collectives += collectives;
    }
    ++g_calls;
    fake::Enqueue(
        stream, [self, number, collective, calls] { RunCalls(*self, number, collective, calls); });
  }
}
ncclResult_t Add(ncclComm_t comm, cudaStream_t stream, const Call& call, bool reads, bool writes) {
  if (comm->is_finalized) Die("a call with a finalised communicator");
  const bool has_bytes = Bytes(call) > 0;
  if (reads && has_bytes && !fake::CanAccess(comm->self->device, call.input))
    Die("an input is no memory of the device");
  if (writes && has_bytes && !fake::CanAccess(comm->self->device, call.output))
    Die("an output is no memory of the device");
  g_issued.push_back({comm->self, stream, call});
  if (g_depth == 0) Issue();
  return ncclSuccess;
}

}  // namespace

namespace fake {
void SetNcclState(ncclResult_t state) { g_state = state; }
int nccl_communicators() { return g_communicators; }
int nccl_calls() { return g_calls; }
}  // namespace fake

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const int number = ++g_ids;
  std::memset(id, 0, sizeof *id);
  std::memcpy(id, &number, sizeof number);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (!config || config->blocking != 0) Die("a communicator that blocks the host");
  int number = 0;
  std::memcpy(&number, &id, sizeof number);
  std::shared_ptr<Group> group;
  {
    const std::lock_guard lock(g_mutex);
    auto& found = g_groups[number];
    if (!found) found = std::make_shared<Group>();
    group = found;
  }
  auto self = std::make_shared<Rank>();
  self->group = group;
  self->rank = rank;
  self->ranks = ranks;
  cudaGetDevice(&self->device);
  *comm = new ncclComm{self};
  ++g_communicators;
  const std::lock_guard lock(group->mutex);
  ++group->joined;
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const Rank& self = *comm->self;
  const std::lock_guard lock(self.group->mutex);
  const int came = comm->is_finalized ? self.group->finalized : self.group->joined;
  *state = came < self.ranks ? ncclInProgress : g_state.load();
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const std::lock_guard lock(comm->self->group->mutex);
  comm->is_finalized = true;
  ++comm->self->group->finalized;
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!comm->is_finalized) Die("a communicator is destroyed, and was not finalised");
  delete comm;
  --g_communicators;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  {
    const std::lock_guard lock(comm->self->group->mutex);
    comm->self->is_aborted = true;
    comm->self->group->changed.notify_all();
  }
  delete comm;
  --g_communicators;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSystemError ? "unhandled system error" : "another error";
}
const char* ncclGetLastError(ncclComm_t) { return "the cable is out"; }

ncclResult_t ncclGroupStart() { return ++g_depth, ncclSuccess; }
ncclResult_t ncclGroupEnd() {
  if (--g_depth == 0) Issue();
  return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return Add(comm, stream, {Kind::kAllReduce, in, out, count, type, op}, true, true);
}
ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return Add(comm, stream, {Kind::kReduce, in, out, count, type, op, root}, true,
             comm->self->rank == root);
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return Add(comm, stream, {Kind::kReduceScatter, in, out, count, type, op}, true, true);
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return Add(comm, stream, {Kind::kBroadcast, in, out, count, type, ncclSum, root},
             comm->self->rank == root, true);
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return Add(comm, stream, {Kind::kAllGather, in, out, count, type}, true, true);
}
ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return Add(comm, stream, {Kind::kSend, in, nullptr, count, type, ncclSum, peer}, true, false);
}
ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return Add(comm, stream, {Kind::kReceive, nullptr, out, count, type, ncclSum, peer}, false, true);
}

}  // extern "C"
