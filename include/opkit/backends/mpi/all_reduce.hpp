// MpiAllReduce: an AllReduce by messages between the processes of a group. It takes less time than
// MPI's nonblocking collective, and unlike that its receives can be cancelled.
#ifndef OPKIT_BACKENDS_MPI_ALL_REDUCE_HPP_
#define OPKIT_BACKENDS_MPI_ALL_REDUCE_HPP_

#include <mpi.h>

#include "opkit/cluster/communication.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Each process reduces one piece of the block: the others send it their elements of this piece, and
// it sends them the results. So a process sends as many bytes as in a ring, in two steps. The
// pieces move in segments, so that messages and reductions overlap. A small block of two processes
// moves as a whole, and both reduce it.
//
// The owner keeps the requests, because MPI may work on them when the communication has been given
// up. All calls get the same ones.
class MpiAllReduce {
 public:
  // The largest group: each process has messages with each other one.
  static constexpr size_t kMaxProcesses = 16;
  // True if a group of this size reduces a block of this size in less time than MPI.
  static bool Suits(size_t processes, int64_t bytes);

  // `process` and `processes` are those of `comm`. The messages have the tags `tag` and `tag` + 1.
  MpiAllReduce(MPI_Comm comm, int process, int processes, int tag,
               const Communication& communication);

  void Begin(std::vector<MPI_Request>& requests);
  // Reduces what has come, and sends the results. Returns true at the end.
  bool Test(std::vector<MPI_Request>& requests);
  // Ends the receives that can end without their messages.
  void Cancel(std::vector<MPI_Request>& requests) const;

 private:
  // Elements of the block, in segments.
  struct Piece {
    int64_t begin = 0, count = 0, segments = 0;
  };
  struct Peer {
    int process = 0;
    Piece piece = {};   // which the peer reduces
    int64_t sends = 0;  // the place of the first request that sends a segment of this piece
    int64_t asked = 0;  // the segments of this piece whose results have been asked for
  };

  Piece PieceOf(int process) const;
  // Returns the number of elements of a segment.
  int64_t CountOf(const Piece& piece, int64_t segment) const;
  // Returns the offset of a segment in the block, in bytes.
  int64_t OffsetOf(const Piece& piece, int64_t segment) const;
  // Returns the memory where a segment of this process's piece comes from a peer.
  char* Received(size_t peer, int64_t segment);
  // Ask all peers for a segment of this process's piece; combine what has come; send the result.
  void Receive(std::vector<MPI_Request>& requests, int64_t segment);
  void Reduce(int64_t segment);
  void SendResult(std::vector<MPI_Request>& requests, int64_t segment);
  bool HasCome(std::vector<MPI_Request>& requests, int64_t segment) const;

  MPI_Comm comm_;
  int process_, processes_, tag_;
  DType dtype_;
  Reduction reduction_;
  int64_t count_;
  const char* input_;
  char* output_;
  bool is_whole_;        // both processes reduce the whole block
  int64_t segment_ = 0;  // elements of a segment but the last of a piece
  int first_ = 0;        // the process with whose elements the reduction begins
  Piece own_;
  std::vector<Peer> peers_;
  int64_t results_ = 0;  // the place of the first request for a result
  int64_t reduced_ = 0;  // segments
  Tensor received_;      // segments of this process's piece
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/backends/mpi/impl/all_reduce.ipp"
#endif

#endif  // OPKIT_BACKENDS_MPI_ALL_REDUCE_HPP_
