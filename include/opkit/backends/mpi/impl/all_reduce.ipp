// Definitions of MpiAllReduce's members.
#ifndef OPKIT_BACKENDS_MPI_IMPL_ALL_REDUCE_IPP_
#define OPKIT_BACKENDS_MPI_IMPL_ALL_REDUCE_IPP_

#include <algorithm>
#include <cstring>

#include "opkit/backends/mpi/all_reduce.hpp"
#include "opkit/backends/mpi/types.hpp"
#include "opkit/base/index.hpp"
#include "opkit/cluster/reduce.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Larger blocks of two processes move in pieces.
inline constexpr int64_t kMpiWholeBytes = 1 << 20;
inline constexpr int64_t kMpiSegmentBytes = 256 << 10;
// A block of two such segments moves in them: MPI sends messages below some size (4 KB in Open MPI,
// in shared memory) without an answer of the receiver.
inline constexpr int64_t kMpiEagerBytes = 4000;
inline constexpr int64_t kMpiSegments = 4;  // of a peer that are asked for at the same time
// More than two processes leave smaller blocks to MPI.
inline constexpr int64_t kMpiLeastBytes = 128 << 10;

inline bool HasEnded(MPI_Request& request) {
  int has_ended = 1;
  if (request != MPI_REQUEST_NULL)
    CheckMpi(MPI_Test(&request, &has_ended, MPI_STATUS_IGNORE), "MPI_Test");
  return has_ended != 0;
}

OPKIT_INLINE bool MpiAllReduce::Suits(size_t processes, int64_t bytes) {
  if (processes < 2 || processes > kMaxProcesses) return false;
  return bytes >= (processes == 2 ? 1 : kMpiLeastBytes);
}

OPKIT_INLINE MpiAllReduce::MpiAllReduce(MPI_Comm comm, int process, int processes, int tag,
                                        const Communication& communication)
    : comm_(comm),
      process_(process),
      processes_(processes),
      tag_(tag),
      dtype_(communication.dtype),
      reduction_(communication.plan().reduction),
      count_(communication.count),
      input_(static_cast<const char*>(communication.input)),
      output_(static_cast<char*>(communication.output)),
      is_whole_(processes == 2 && communication.bytes() <= kMpiWholeBytes),
      segment_((communication.bytes() <= 2 * kMpiEagerBytes ? kMpiEagerBytes : kMpiSegmentBytes) /
               ItemSize(dtype_)),
      own_(PieceOf(process)) {
  int64_t requests = (processes - 1) * own_.segments;
  for (int peer = 0; peer < processes; ++peer) {
    if (peer == process) continue;
    peers_.push_back({.process = peer, .piece = PieceOf(peer), .sends = requests});
    requests += peers_.back().piece.segments;
  }
  results_ = requests;
  // The processes that reduce a whole block must get the same bits. For a piece, the first two
  // operands may be in either order.
  const bool is_in_place = input_ == output_;
  first_ = is_whole_ ? 0 : is_in_place && process <= 1 ? process : peers_[0].process;
  const int64_t room = (std::min)(own_.segments, kMpiSegments) * (std::min)(segment_, own_.count);
  if (is_in_place || first_ == process || processes > 2)
    received_ = Tensor(Shape{(processes - 1) * room}, dtype_);
}

OPKIT_INLINE MpiAllReduce::Piece MpiAllReduce::PieceOf(int process) const {
  Piece piece{.count = count_};
  if (!is_whole_) {
    piece.begin = count_ / processes_ * process + (std::min<int64_t>)(process, count_ % processes_);
    piece.count = count_ / processes_ + (process < count_ % processes_ ? 1 : 0);
  }
  piece.segments = (piece.count + segment_ - 1) / segment_;
  return piece;
}
OPKIT_INLINE int64_t MpiAllReduce::CountOf(const Piece& piece, int64_t segment) const {
  return (std::min)(segment_, piece.count - segment * segment_);
}
OPKIT_INLINE int64_t MpiAllReduce::OffsetOf(const Piece& piece, int64_t segment) const {
  return (piece.begin + segment * segment_) * ItemSize(dtype_);
}
OPKIT_INLINE char* MpiAllReduce::Received(size_t peer, int64_t segment) {
  if (input_ != output_ && peers_[peer].process == first_) return output_ + OffsetOf(own_, segment);
  const int64_t slots = (std::min)(own_.segments, kMpiSegments);
  const int64_t slot = static_cast<int64_t>(peer) * slots + segment % slots;
  return static_cast<char*>(received_.raw_mutable_data()) +
         slot * (std::min)(segment_, own_.count) * ItemSize(dtype_);
}

// The requests are, in this order: for each peer those for segments to be reduced; for each peer
// those that send it segments; results from each peer; and results to each peer.
OPKIT_INLINE void MpiAllReduce::Begin(std::vector<MPI_Request>& requests) {
  const int64_t of_results =
      is_whole_ ? 0 : results_ - peers_[0].sends + std::ssize(peers_) * own_.segments;
  requests.assign(Index(results_ + of_results), MPI_REQUEST_NULL);
  for (int64_t i = 0; i < (std::min)(own_.segments, kMpiSegments); ++i) Receive(requests, i);
  for (const Peer& peer : peers_)
    for (int64_t i = 0; i < peer.piece.segments; ++i)
      CheckMpi(MPI_Isend(input_ + OffsetOf(peer.piece, i),
                         static_cast<int>(CountOf(peer.piece, i) * ItemSize(dtype_)), MPI_BYTE,
                         peer.process, tag_, comm_, &requests[Index(peer.sends + i)]),
               "MPI_Isend");
}

OPKIT_INLINE void MpiAllReduce::Receive(std::vector<MPI_Request>& requests, int64_t segment) {
  const auto bytes = static_cast<int>(CountOf(own_, segment) * ItemSize(dtype_));
  for (size_t i = 0; i < peers_.size(); ++i)
    CheckMpi(MPI_Irecv(Received(i, segment), bytes, MPI_BYTE, peers_[i].process, tag_, comm_,
                       &requests[i * Index(own_.segments) + Index(segment)]),
             "MPI_Irecv");
}
OPKIT_INLINE bool MpiAllReduce::HasCome(std::vector<MPI_Request>& requests, int64_t segment) const {
  for (size_t i = 0; i < peers_.size(); ++i)
    if (!HasEnded(requests[i * Index(own_.segments) + Index(segment)])) return false;
  // The result of a whole block may replace elements that are being sent.
  return !is_whole_ || HasEnded(requests[Index(peers_[0].sends + segment)]);
}
OPKIT_INLINE void MpiAllReduce::Reduce(int64_t segment) {
  const int64_t count = CountOf(own_, segment), bytes = count * ItemSize(dtype_);
  const char* const input = input_ + OffsetOf(own_, segment);
  char* const output = output_ + OffsetOf(own_, segment);
  char* into = output;
  if (first_ != process_)
    into = Received(0, segment);
  else if (input != output)
    std::memcpy(output, input, Index(bytes));
  for (int process = 0; process < processes_; ++process) {
    if (process == first_) continue;
    const char* const from =
        process == process_ ? input : Received(Index(process - (process > process_)), segment);
    ReduceInto(reduction_, dtype_, count, from, into);
  }
  if (into != output) std::memcpy(output, into, Index(bytes));
}
OPKIT_INLINE void MpiAllReduce::SendResult(std::vector<MPI_Request>& requests, int64_t segment) {
  const int64_t first = std::ssize(requests) - std::ssize(peers_) * own_.segments;
  for (size_t i = 0; i < peers_.size(); ++i)
    CheckMpi(MPI_Isend(output_ + OffsetOf(own_, segment),
                       static_cast<int>(CountOf(own_, segment) * ItemSize(dtype_)), MPI_BYTE,
                       peers_[i].process, tag_ + 1, comm_,
                       &requests[Index(first + segment) + i * Index(own_.segments)]),
             "MPI_Isend");
}

OPKIT_INLINE bool MpiAllReduce::Test(std::vector<MPI_Request>& requests) {
  for (; reduced_ < own_.segments && HasCome(requests, reduced_); ++reduced_) {
    Reduce(reduced_);
    if (!is_whole_) SendResult(requests, reduced_);
    if (reduced_ + kMpiSegments < own_.segments) Receive(requests, reduced_ + kMpiSegments);
  }
  bool has_asked = true;
  for (Peer& peer : peers_) {
    if (is_whole_) break;
    // A result may replace elements that are being sent.
    for (; peer.asked < peer.piece.segments && HasEnded(requests[Index(peer.sends + peer.asked)]);
         ++peer.asked)
      CheckMpi(MPI_Irecv(output_ + OffsetOf(peer.piece, peer.asked),
                         static_cast<int>(CountOf(peer.piece, peer.asked) * ItemSize(dtype_)),
                         MPI_BYTE, peer.process, tag_ + 1, comm_,
                         &requests[Index(peer.sends + peer.asked + results_ - peers_[0].sends)]),
               "MPI_Irecv");
    has_asked &= peer.asked == peer.piece.segments;
  }
  if (reduced_ < own_.segments || !has_asked) return false;
  return std::all_of(requests.rbegin(), requests.rend(), HasEnded);
}

OPKIT_INLINE void MpiAllReduce::Cancel(std::vector<MPI_Request>& requests) const {
  const auto cancel = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end && i < std::ssize(requests); ++i)
      if (requests[Index(i)] != MPI_REQUEST_NULL) MPI_Cancel(&requests[Index(i)]);
  };
  cancel(0, peers_[0].sends);
  if (!is_whole_) cancel(results_, 2 * results_ - peers_[0].sends);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_MPI_IMPL_ALL_REDUCE_IPP_
