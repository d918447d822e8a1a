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

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The largest tags are those of MpiAllReduce: two for each of this many under way.
inline constexpr int kMpiAllReduces = 1024;

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
  number = (number + 1) % kMpiAllReduces;
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
  const int64_t max_channel = (link->progress().max_tag() - 2 * kMpiAllReduces - 1) / 2;
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
  void* const into = c.Allocate(dtype, shape);
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
  if (plan.kind == CommunicationKind::kAllReduce && MpiAllReduce::Suits(group.size(), bytes))
    return BeginAllReduce(comm, group);
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

OPKIT_INLINE void MpiWork::BeginAllReduce(MPI_Comm comm, const std::vector<int>& group) {
  const Communication& c = *communication;
  static_cast<void>(link->progress().reductions().Of(c.plan().reduction, c.dtype));  // may throw
  const auto process = std::find(group.begin(), group.end(), link->progress().process());
  const int64_t tag = link->progress().max_tag() - 2 * link->NextNumber(group) - 1;
  all_reduce.emplace(comm, static_cast<int>(process - group.begin()),
                     static_cast<int>(group.size()), static_cast<int>(tag), c);
  all_reduce->Begin(requests);
}
OPKIT_INLINE void MpiWork::Cancel() {
  if (all_reduce) return all_reduce->Cancel(requests);
  if (communication->plan().kind != CommunicationKind::kReceive) return;
  for (MPI_Request& request : requests)
    if (request != MPI_REQUEST_NULL) MPI_Cancel(&request);
}

OPKIT_INLINE bool MpiWork::Test() {
  if (all_reduce) return all_reduce->Test(requests);
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
