// PartitionerRequest: the name of a partitioner and its options, with which a program uses it; and
// the options that every partitioner has.
#ifndef OPKIT_GRAPH_PARTITION_REQUEST_HPP_
#define OPKIT_GRAPH_PARTITION_REQUEST_HPP_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "opkit/base/hook.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class Graph;
struct PartitionReport;

// Options by name. Every partitioner has these options of opkit:
//   exclude_ops    operators whose nodes stay in the graph: "Conv,MatMul"
//   exclude_nodes  names of nodes that stay in the graph, separated by commas
//   min_size       the least number of nodes in a subgraph; default 1
//   max_size       the largest number of nodes in a subgraph
//   max_subgraphs  the number of subgraphs; the largest are kept
//   require_all    "true": an Error if nodes stay outside of subgraphs; the message lists them
//   see_taken      "true": may also take nodes that an earlier partitioner made
//   accept_if_faster  "true": keeps a subgraph only if a measured run of its operator is faster
//                  than a run of the nodes that it would replace
// The partitioner's functions get all other options.
using PartitionArguments = std::vector<std::pair<std::string, std::string>>;

// A partitioner to run, by name.
//
//   Compile(graph, {.partitioners = {"first", {"second", {{"min_size", "2"}}}}});
struct PartitionerRequest {
  std::string name;
  PartitionArguments options;

  PartitionerRequest(const char* partitioner) : name(partitioner) {}  // NOLINT: implicit
  PartitionerRequest(std::string partitioner, PartitionArguments arguments = {})  // NOLINT
      : name(std::move(partitioner)), options(std::move(arguments)) {}
};

namespace detail {

// The hook by which Compile calls Partition; the first registration of a partitioner fills it.
OPKIT_IMAGE_LOCAL inline constinit Hook<Graph(const Graph&, const std::vector<PartitionerRequest>&,
                                              std::shared_ptr<const PartitionReport>&)>
    g_partition{"a partitioner", "opkit/partition.hpp"};

}  // namespace detail

}}  // namespace opkit

#endif  // OPKIT_GRAPH_PARTITION_REQUEST_HPP_
