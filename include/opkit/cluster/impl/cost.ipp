// Definitions of the costs of messages and collectives.
#ifndef OPKIT_CLUSTER_IMPL_COST_IPP_
#define OPKIT_CLUSTER_IMPL_COST_IPP_

#include <algorithm>

#include "opkit/cluster/cost.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE double CommunicationSeconds(CommunicationKind kind, int processes, int64_t bytes,
                                         const LinkCost& cost, AllReduceAlgorithm algorithm) {
  const double alpha = cost.latency;
  const double size = static_cast<double>(bytes);
  const double send = size * cost.seconds_per_byte;
  const double reduce = size * cost.reduction_per_byte;
  if (kind == CommunicationKind::kSend || kind == CommunicationKind::kReceive) return alpha + send;
  if (processes <= 1) return 0;
  const double others = processes - 1;
  int levels = 0;
  while ((int64_t{1} << levels) < processes) ++levels;
  switch (kind) {
    case CommunicationKind::kAllReduce: {
      const double ring = 2 * others * alpha + others / processes * (2 * send + reduce);
      const double tree = levels * (2 * (alpha + send) + reduce);
      return algorithm == AllReduceAlgorithm::kRing   ? ring
             : algorithm == AllReduceAlgorithm::kTree ? tree
                                                      : (std::min)(ring, tree);
    }
    case CommunicationKind::kReduce:
      return levels * (alpha + send + reduce);
    case CommunicationKind::kBroadcast:
      return levels * (alpha + send);
    case CommunicationKind::kGather:
    case CommunicationKind::kScatter:
      return levels * alpha + others * send;
    case CommunicationKind::kReduceScatter:
      return others * (alpha + send + reduce);
    case CommunicationKind::kAllGather:
    case CommunicationKind::kAllToAll:
      return others * (alpha + send);
    default:
      return levels * alpha;  // Barrier
  }
}

}}  // namespace opkit

#endif  // OPKIT_CLUSTER_IMPL_COST_IPP_
