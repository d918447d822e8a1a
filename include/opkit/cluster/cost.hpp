// LinkCost: how long messages and collectives take between processes. The simulator predicts with
// it, and a LocalCluster with a delay waits as long.
#ifndef OPKIT_CLUSTER_COST_HPP_
#define OPKIT_CLUSTER_COST_HPP_

#include "opkit/cluster/communication.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The cost of a connection between two processes, the alpha-beta-gamma model of Hockney (1994) and
// of Thakur, Rabenseifner and Gropp (2005). All zeros: communication takes no time.
struct LinkCost {
  double latency = 0;             // alpha: seconds for each message
  double seconds_per_byte = 0;    // beta: 1 / bandwidth
  double reduction_per_byte = 0;  // gamma: seconds to combine a byte of two blocks

  bool is_zero() const { return latency == 0 && seconds_per_byte == 0 && reduction_per_byte == 0; }
};

// How an AllReduce is made of messages. kRing sends 2 (n-1) messages of one n-th of the block, one
// after the other. kTree reduces to one process and broadcasts, each in ceil(log2 n) messages of
// the whole block. kFastest is the one of lower cost.
enum class AllReduceAlgorithm : uint8_t { kRing, kTree, kFastest };

// Returns the seconds of a message, or of a collective on `processes` processes, with blocks of
// `bytes` bytes (CommunicationKind says what a block is). AllGather, ReduceScatter and AllToAll
// send n-1 blocks one after the other; Broadcast, Reduce, Gather, Scatter and Barrier use a
// binomial tree.
double CommunicationSeconds(CommunicationKind kind, int processes, int64_t bytes,
                            const LinkCost& cost,
                            AllReduceAlgorithm algorithm = AllReduceAlgorithm::kRing);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/cluster/impl/cost.ipp"
#endif

#endif  // OPKIT_CLUSTER_COST_HPP_
