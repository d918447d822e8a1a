// Definitions of MpiLink and MpiWork: how a communication becomes calls of MPI.
#ifndef OPKIT_BACKENDS_MPI_IMPL_WORK_IPP_
#define OPKIT_BACKENDS_MPI_IMPL_WORK_IPP_

#include <algorithm>
#include <climits>
#include <cstring>
#include <utility>

#include "opkit/backends/mpi/progress.hpp"
#include "opkit/base/error.hpp"
#include "opkit/base/index.hpp"
#include "opkit/cluster/reduce.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The largest tags are those of MpiPair: two for each AllReduce of this many under way.
inline constexpr int kMpiPairs = 1024;
// The blocks of which each process of a MpiPair reduces one half are larger than this.
inline constexpr int64_t kMpiWholeBytes = 16 << 10;
inline constexpr int64_t kMpiSegmentBytes = 128 << 10;
inline constexpr int64_t kMpiSegments = 4;  // that wait for their reduction at the same time

OPKIT_INLINE MpiLink::MpiLink(IntrusivePtr<MpiProgress> progress, MPI_Comm comm, std::string path)
    : progress_(std::move(progress)), comm_(comm), path_(std::move(path)) {
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
}
OPKIT_INLINE MpiLink::~MpiLink() {
  // MPI may still work on a broken communicator.
  if (failure_ || !progress_->is_open()) return;
  for (auto& [group, comm] : groups_) MPI_Comm_free(&comm);
  MPI_Comm comm = comm_;
  MPI_Comm_free(&comm);
}
OPKIT_INLINE MPI_Comm MpiLink::CommOf(const std::vector<int>& group) {
  if (static_cast<int>(group.size()) == progress_->processes()) return comm_;
  const std::lock_guard lock(mutex_);
  if (const auto found = groups_.find(group); found != groups_.end()) return found->second;
  MPI_Group all, members;
  MPI_Comm comm = MPI_COMM_NULL;
  CheckMpi(MPI_Comm_group(comm_, &all), "MPI_Comm_group");
  int code = MPI_Group_incl(all, static_cast<int>(group.size()), group.data(), &members);
  MPI_Group_free(&all);
  CheckMpi(code, "MPI_Group_incl");
  // Groups that threads make at the same time have tags of their own.
  int64_t tag = 0;
  for (const int process : group) tag = (tag * 31 + process + 1) % 32749;
  code = MPI_Comm_create_group(comm_, members, static_cast<int>(tag), &comm);
  MPI_Group_free(&members);
  CheckMpi(code, "MPI_Comm_create_group");
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  return groups_.emplace(group, comm).first->second;
}
OPKIT_INLINE int MpiLink::NextNumber(const std::vector<int>& group) {
  const std::lock_guard lock(mutex_);
  int& number = numbers_[group];
  const int result = number;
  number = (number + 1) % kMpiPairs;
  return result;
}
OPKIT_INLINE std::exception_ptr MpiLink::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}
OPKIT_INLINE void MpiLink::SetFailure(const std::exception_ptr& error) {
  const std::lock_guard lock(mutex_);
  failure_ = error;
}

OPKIT_INLINE void MpiWork::Begin(const std::vector<int>& group) {
  const CommunicationKind kind = communication->plan().kind;
  bytes = communication->dtype == DType::kUndefined ? 0 : communication->bytes();
  if (kind == CommunicationKind::kSend || kind == CommunicationKind::kReceive)
    BeginMessage();
  else
    BeginCollective(group);
}

// Messages of a channel have two tags, so that the headers and the tensors of dynamic messages each
// keep their order.
OPKIT_INLINE void MpiWork::BeginMessage() {
  const Communication& c = *communication;
  const CommunicationPlan& plan = c.plan();
  const bool sends = plan.kind == CommunicationKind::kSend;
  const int64_t max_channel = (link->progress().max_tag() - 2 * kMpiPairs - 1) / 2;
  if (plan.channel < 0 || plan.channel > max_channel)
    Throw(ErrorCode::kOutOfRange, "the message has channel ", plan.channel,
          ", but MPI has tags for channels up to ", max_channel);
  if (plan.process < 0 || plan.process >= link->progress().processes())
    Throw(ErrorCode::kOutOfRange, "there is no process ", plan.process, ": the cluster has ",
          link->progress().processes());
  const int header_tag = static_cast<int>(2 * plan.channel + 1);
  if (plan.is_dynamic && !sends) {
    header.resize(2 + 64);
    awaits_header = true;
    CheckMpi(MPI_Irecv(header.data(), static_cast<int>(header.size()), MPI_INT64_T, plan.process,
                       header_tag, link->comm(), &requests.emplace_back(MPI_REQUEST_NULL)),
             "MPI_Irecv");
    return;
  }
  if (!IsPlain(c.dtype)) static_cast<void>(MpiTypeOf(c.dtype));  // throws
  if (plan.is_dynamic) {
    header = {static_cast<int64_t>(c.dtype), c.shape.rank()};
    header.insert(header.end(), c.shape.begin(), c.shape.end());
    if (header.size() > 2 + 64)
      Throw(ErrorCode::kUnsupported, "a message has a tensor of rank ", c.shape.rank(),
            ", but processes on MPI exchange tensors of rank 64 at most");
    CheckMpi(MPI_Isend(header.data(), static_cast<int>(header.size()), MPI_INT64_T, plan.process,
                       header_tag, link->comm(), &requests.emplace_back(MPI_REQUEST_NULL)),
             "MPI_Isend");
  }
  MoveBytes(sends, sends ? const_cast<void*>(c.input) : c.output, bytes);
}

// MPI counts in int: a large tensor is several messages.
OPKIT_INLINE void MpiWork::MoveBytes(bool sends, void* buffer, int64_t size) {
  constexpr int64_t kPiece = int64_t{1} << 30;
  const int process = communication->plan().process;
  const int tag = static_cast<int>(2 * communication->plan().channel);
  for (int64_t begin = 0; begin == 0 || begin < size; begin += kPiece) {
    char* const piece = static_cast<char*>(buffer) + begin;
    const int count = static_cast<int>((std::min)(kPiece, size - begin));
    MPI_Request& request = requests.emplace_back(MPI_REQUEST_NULL);
    if (sends)
      CheckMpi(MPI_Isend(piece, count, MPI_BYTE, process, tag, link->comm(), &request),
               "MPI_Isend");
    else
      CheckMpi(MPI_Irecv(piece, count, MPI_BYTE, process, tag, link->comm(), &request),
               "MPI_Irecv");
  }
}

OPKIT_INLINE void MpiWork::TakeHeader() {
  Communication& c = *communication;
  const auto dtype = static_cast<DType>(header[0]);
  const Shape shape(std::vector<int64_t>(header.begin() + 2, header.begin() + 2 + header[1]));
  bytes = BytesOf(shape.numel(), dtype);
  void* into = c.Allocate(dtype, shape);
  if (!into) {  // the operator has gone; MPI's message still needs a receiver
    struct Dropped final : RefCounted {
      std::vector<char> bytes;
    };
    auto dropped = MakeIntrusive<Dropped>();
    dropped->bytes.resize(Index(bytes));
    into = dropped->bytes.data();
    memory = std::move(dropped);
  }
  requests.clear();
  MoveBytes(false, into, bytes);
}

OPKIT_INLINE void MpiWork::BeginCollective(const std::vector<int>& group) {
  const Communication& c = *communication;
  const CommunicationPlan& plan = c.plan();
  const MPI_Comm comm = link->CommOf(group);
  const auto found = std::find(group.begin(), group.end(), plan.process);
  const int root = found == group.end() ? 0 : static_cast<int>(found - group.begin());
  const bool is_root = found != group.end() && *found == link->progress().process();
  if (c.count > INT_MAX)
    Throw(ErrorCode::kUnsupported, "a collective on MPI has blocks of ", INT_MAX,
          " elements at most, but this one has ", c.count);
  if (plan.kind == CommunicationKind::kAllReduce && group.size() == 2 && bytes > 0)
    return BeginPair(comm, group);
  const int count = static_cast<int>(c.count);
  const void* const input = c.input == c.output ? MPI_IN_PLACE : c.input;
  MPI_Request* const request = &requests.emplace_back(MPI_REQUEST_NULL);
  MpiReduction how{MPI_BYTE, MPI_SUM};
  switch (plan.kind) {
    case CommunicationKind::kAllReduce:
    case CommunicationKind::kReduce:
    case CommunicationKind::kReduceScatter:
      how = link->progress().reductions().Of(plan.reduction, c.dtype);
      break;
    case CommunicationKind::kBarrier:
      break;
    default:
      how.type = MpiTypeOf(c.dtype);
  }
  switch (plan.kind) {
    case CommunicationKind::kAllReduce:
      return CheckMpi(MPI_Iallreduce(input, c.output, count, how.type, how.op, comm, request),
                      "MPI_Iallreduce");
    case CommunicationKind::kReduce:
      return CheckMpi(MPI_Ireduce(is_root ? input : c.input, c.output, count, how.type, how.op,
                                  root, comm, request),
                      "MPI_Ireduce");
    case CommunicationKind::kReduceScatter:
      return CheckMpi(
          MPI_Ireduce_scatter_block(c.input, c.output, count, how.type, how.op, comm, request),
          "MPI_Ireduce_scatter_block");
    case CommunicationKind::kBroadcast:
      if (is_root && c.input != c.output && bytes > 0) std::memcpy(c.output, c.input, Index(bytes));
      return CheckMpi(MPI_Ibcast(c.output, count, how.type, root, comm, request), "MPI_Ibcast");
    case CommunicationKind::kAllGather:
      return CheckMpi(
          MPI_Iallgather(c.input, count, how.type, c.output, count, how.type, comm, request),
          "MPI_Iallgather");
    case CommunicationKind::kGather:
      return CheckMpi(
          MPI_Igather(c.input, count, how.type, c.output, count, how.type, root, comm, request),
          "MPI_Igather");
    case CommunicationKind::kScatter:
      return CheckMpi(
          MPI_Iscatter(c.input, count, how.type, c.output, count, how.type, root, comm, request),
          "MPI_Iscatter");
    case CommunicationKind::kAllToAll:
      return CheckMpi(
          MPI_Ialltoall(input, count, how.type, c.output, count, how.type, comm, request),
          "MPI_Ialltoall");
    case CommunicationKind::kBarrier:
      return CheckMpi(MPI_Ibarrier(comm, request), "MPI_Ibarrier");
    case CommunicationKind::kSend:
    case CommunicationKind::kReceive:
      return;
  }
}

OPKIT_INLINE char* MpiWork::OwnSegment(int64_t i, const void* buffer) const {
  return static_cast<char*>(const_cast<void*>(buffer)) +
         (pair->own_begin + i * pair->segment) * ItemSize(communication->dtype);
}
// The requests are, in this order: segments to be reduced, results, and the same two that are sent.
OPKIT_INLINE void MpiWork::BeginPair(MPI_Comm comm, const std::vector<int>& group) {
  const Communication& c = *communication;
  static_cast<void>(link->progress().reductions().Of(c.plan().reduction, c.dtype));  // may throw
  const int64_t item = ItemSize(c.dtype);
  const bool is_first = group[0] == link->progress().process();
  const int64_t half = c.count / 2;
  const int number = link->NextNumber(group);
  pair = MpiPair{.comm = comm,
                 .peer = is_first ? 1 : 0,
                 .tag = static_cast<int>(link->progress().max_tag()) - 2 * number - 1,
                 .is_whole = bytes <= kMpiWholeBytes,
                 .own_begin = is_first ? 0 : half,
                 .own_count = is_first ? half : c.count - half,
                 .other_begin = is_first ? half : 0,
                 .other_count = is_first ? c.count - half : half,
                 .segment = kMpiSegmentBytes / item};
  if (pair->is_whole) {
    pair->own_begin = pair->other_begin = 0;
    pair->own_count = pair->other_count = c.count;
  }
  const int64_t own = pair->own_segments(), other = pair->other_segments();
  requests.assign(Index(2 * (own + other)), MPI_REQUEST_NULL);
  if (c.input == c.output)
    pair->received.resize(
        Index((std::min)(own, kMpiSegments) * (std::min)(pair->segment, pair->own_count) * item));
  for (int64_t i = 0; i < (std::min)(own, kMpiSegments); ++i) ReceiveSegment(i);
  for (int64_t i = 0; i < other; ++i) {
    const int64_t begin = i * pair->segment;
    const int64_t count = (std::min)(pair->segment, pair->other_count - begin);
    CheckMpi(MPI_Isend(static_cast<const char*>(c.input) + (pair->other_begin + begin) * item,
                       static_cast<int>(count * item), MPI_BYTE, pair->peer, pair->tag, comm,
                       &requests[Index(own + other + i)]),
             "MPI_Isend");
  }
}
OPKIT_INLINE void MpiWork::ReceiveSegment(int64_t i) {
  const Communication& c = *communication;
  const int64_t item = ItemSize(c.dtype);
  const int64_t count = (std::min)(pair->segment, pair->own_count - i * pair->segment);
  char* const into = pair->received.empty()
                         ? OwnSegment(i, c.output)
                         : pair->received.data() + i % kMpiSegments * pair->segment * item;
  CheckMpi(MPI_Irecv(into, static_cast<int>(count * item), MPI_BYTE, pair->peer, pair->tag,
                     pair->comm, &requests[Index(i)]),
           "MPI_Irecv");
}
OPKIT_INLINE bool MpiWork::TestPair() {
  const Communication& c = *communication;
  const int64_t item = ItemSize(c.dtype), own = pair->own_segments(),
                other = pair->other_segments();
  const auto has_ended = [&](int64_t request) {
    int ended = 0;
    CheckMpi(MPI_Test(&requests[Index(request)], &ended, MPI_STATUS_IGNORE), "MPI_Test");
    return ended != 0;
  };
  if (pair->is_whole) {
    // The output may be the input, which must have been sent.
    if (!has_ended(0) || !has_ended(own + other)) return false;
    ReduceInto(c.plan().reduction, c.dtype, c.count,
               pair->received.empty() ? c.input : pair->received.data(), c.output);
    return true;
  }
  for (; pair->reduced < own && has_ended(pair->reduced); ++pair->reduced) {
    const int64_t i = pair->reduced;
    const int64_t count = (std::min)(pair->segment, pair->own_count - i * pair->segment);
    const void* const from = pair->received.empty()
                                 ? OwnSegment(i, c.input)
                                 : pair->received.data() + i % kMpiSegments * pair->segment * item;
    ReduceInto(c.plan().reduction, c.dtype, count, from, OwnSegment(i, c.output));
    CheckMpi(
        MPI_Isend(OwnSegment(i, c.output), static_cast<int>(count * item), MPI_BYTE, pair->peer,
                  pair->tag + 1, pair->comm, &requests[Index(own + 2 * other + i)]),
        "MPI_Isend");
    if (i + kMpiSegments < own) ReceiveSegment(i + kMpiSegments);
  }
  // The output may be the input: a result may come when its elements have been sent.
  for (; pair->asked < other && has_ended(own + other + pair->asked); ++pair->asked) {
    const int64_t begin = pair->asked * pair->segment;
    const int64_t count = (std::min)(pair->segment, pair->other_count - begin);
    CheckMpi(MPI_Irecv(static_cast<char*>(c.output) + (pair->other_begin + begin) * item,
                       static_cast<int>(count * item), MPI_BYTE, pair->peer, pair->tag + 1,
                       pair->comm, &requests[Index(own + pair->asked)]),
             "MPI_Irecv");
  }
  if (pair->reduced < own || pair->asked < other) return false;
  for (int64_t i = 2 * (own + other) - 1; i >= own; --i)
    if (requests[Index(i)] != MPI_REQUEST_NULL && !has_ended(i)) return false;
  return true;
}
OPKIT_INLINE void MpiWork::Cancel() {
  size_t receives = 0;
  if (pair) receives = Index(pair->own_segments() + pair->other_segments());
  if (communication->plan().kind == CommunicationKind::kReceive) receives = requests.size();
  for (size_t i = 0; i < receives && i < requests.size(); ++i)
    if (requests[i] != MPI_REQUEST_NULL) MPI_Cancel(&requests[i]);
}

OPKIT_INLINE bool MpiWork::Test() {
  if (pair) return TestPair();
  const bool receives = communication && communication->plan().kind == CommunicationKind::kReceive;
  for (MPI_Request& request : requests) {
    if (request == MPI_REQUEST_NULL) continue;
    MPI_Status status;
    int has_ended = 0;
    CheckMpi(MPI_Test(&request, &has_ended, &status), receives ? "MPI_Irecv" : "MPI_Test");
    if (!has_ended) return false;
    int count = 0;
    if (!receives || awaits_header || requests.size() > 1) continue;
    CheckMpi(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count");
    if (count != bytes)
      Throw(ErrorCode::kInvalidArgument, communication->node(), " expects ", bytes,
            " bytes, but the process ", communication->plan().process, " has sent ", count);
  }
  if (!awaits_header) return true;
  awaits_header = false;
  TakeHeader();
  return Test();
}
OPKIT_INLINE void MpiWork::Finish(std::exception_ptr error) {
  if (communication)
    communication->Finish(std::move(error));
  else
    ended(std::move(error));
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_MPI_IMPL_WORK_IPP_
