// Topology: the cost of the connection between any two processes, from a JSON file. The simulator
// reads it.
#ifndef OPKIT_CLUSTER_TOPOLOGY_HPP_
#define OPKIT_CLUSTER_TOPOLOGY_HPP_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "opkit/cluster/cost.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Processes 0 to processes_per_host - 1 are on the first host, the next ones on the second, and so
// on.
//
//   {"processes_per_host": 8,
//    "within_host": {"latency_us": 2, "gigabytes_per_s": 50, "reduction_gigabytes_per_s": 100},
//    "between_hosts": {"latency_us": 10, "gigabytes_per_s": 12.5},
//    "links": [{"between": [0, 8], "latency_us": 30, "gigabytes_per_s": 1}]}
//
// Every member may be left out. A latency or a rate that is left out costs nothing. A link is the
// connection of two processes, in both directions, that differs from those of their hosts.
struct Topology {
  int processes_per_host = 1;
  LinkCost within_host;
  LinkCost between_hosts;
  std::map<std::pair<int, int>, LinkCost> links;  // by the lower and the higher process

  // Returns the cost of a message between two processes; nothing from a process to itself.
  LinkCost Between(int one, int other) const;
  // Returns the cost of the slowest connection, part by part, of a ring of the processes.
  LinkCost OfRing(const std::vector<int>& processes) const;

  // Throws kInvalidArgument, with the place, for a text that is no topology.
  static Topology Parse(const std::string& json);
  // Also throws kIo for a file that cannot be read.
  static Topology Load(const std::string& path);
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/cluster/impl/topology.ipp"
#endif

#endif  // OPKIT_CLUSTER_TOPOLOGY_HPP_
