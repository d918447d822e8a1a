// PartitionLimits: the options that every partitioner has, read from what a program gives, and the
// rest, which is the partitioner's own. Only definitions include this header.
#ifndef OPKIT_GRAPH_PARTITION_OPTIONS_HPP_
#define OPKIT_GRAPH_PARTITION_OPTIONS_HPP_

#include "opkit/graph/partition/request.hpp"
#include "opkit/graph/partition/view.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

struct PartitionLimits {
  std::vector<std::string> exclude_ops, exclude_nodes;
  int min_size = 1, max_size = 0, max_subgraphs = 0;  // 0: any number
  bool require_all = false, see_taken = false, accept_if_faster = false;
  PartitionArguments rest;  // for the partitioner

  // The names of the options that every partitioner has.
  static std::vector<std::string> Names();
};

// Error (kInvalidArgument) for an option given twice or a value that it does not take.
PartitionLimits ReadPartitionLimits(const PartitionArguments& options);

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/partition/impl/options.ipp"
#endif

#endif  // OPKIT_GRAPH_PARTITION_OPTIONS_HPP_
