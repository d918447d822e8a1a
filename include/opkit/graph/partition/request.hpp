// PartitionerRequest: a partitioner by name with its options, as programs ask for it, and the
// options that every partitioner has.
#ifndef OPKIT_GRAPH_PARTITION_REQUEST_HPP_
#define OPKIT_GRAPH_PARTITION_REQUEST_HPP_

#include <string>
#include <utility>
#include <vector>

#include "opkit/base/hook.hpp"

namespace opkit::inline OPKIT_ABI {

class Graph;
struct PartitionReport;

// Options by name. Those of the toolkit, which every partitioner has:
//   exclude_ops    operators that stay where they are: "Conv,MatMul"
//   exclude_nodes  nodes that stay where they are, by name, separated by commas
//   min_size       nodes that a subgraph has at least; 1 without it
//   max_size       nodes that a subgraph has at most
//   max_subgraphs  the largest ones are kept
//   require_all    "true": a node that stays outside is an Error, which lists all of them
//   see_taken      "true": may take the nodes that a partitioner before it has put there
//   accept_if_faster  "true": keeps a subgraph only where a measured run of its operator is faster
//                  than one of the nodes that it would replace
// The partitioner gets all others.
using PartitionArguments = std::vector<std::pair<std::string, std::string>>;

//   Compile(graph, {.partitioners = {"first", {"second", {{"min_size", "2"}}}}});
struct PartitionerRequest {
  std::string name;
  PartitionArguments options;

  PartitionerRequest(const char* partitioner) : name(partitioner) {}  // NOLINT: implicit
  PartitionerRequest(std::string partitioner, PartitionArguments arguments = {})  // NOLINT
      : name(std::move(partitioner)), options(std::move(arguments)) {}
};

namespace detail {

// Partition. Compile calls it; the first registration of a partitioner fills it.
OPKIT_IMAGE_LOCAL inline constinit Hook<Graph(const Graph&, const std::vector<PartitionerRequest>&,
                                              PartitionReport*)>
    g_partition{"a partitioner", "opkit/partition.hpp"};

}  // namespace detail

}  // namespace opkit

#endif  // OPKIT_GRAPH_PARTITION_REQUEST_HPP_
