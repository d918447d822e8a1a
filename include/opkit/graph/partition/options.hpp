// PartitionLimits: the options that every partitioner has, parsed from a program's options, and the
// partitioner's own options. Only files with definitions include this header.
#ifndef OPKIT_GRAPH_PARTITION_OPTIONS_HPP_
#define OPKIT_GRAPH_PARTITION_OPTIONS_HPP_

#include "opkit/graph/partition/request.hpp"
#include "opkit/graph/partition/view.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The options of request.hpp, parsed.
struct PartitionLimits {
  std::vector<std::string> exclude_ops, exclude_nodes;
  int min_size = 1, max_size = 0, max_subgraphs = 0;  // 0: any number
  bool require_all = false, see_taken = false, accept_if_faster = false;
  PartitionArguments rest;  // the partitioner's own options

  // Returns the names of the options that every partitioner has.
  static std::vector<std::string> Names();
};

// Throws kInvalidArgument for an option given twice, for an invalid value, and if max_size <
// min_size.
PartitionLimits ReadPartitionLimits(const PartitionArguments& options);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/partition/impl/options.ipp"
#endif

#endif  // OPKIT_GRAPH_PARTITION_OPTIONS_HPP_
