// Partition: asks partitioners for the nodes that they take, cuts these into legal subgraphs, and
// puts an operator of each partitioner in the place of every one that it accepts.
#ifndef OPKIT_GRAPH_PARTITION_PARTITION_HPP_
#define OPKIT_GRAPH_PARTITION_PARTITION_HPP_

#include "opkit/graph/carried_graph.hpp"
#include "opkit/graph/partition/report.hpp"
#include "opkit/graph/partition/request.hpp"

namespace opkit::inline OPKIT_ABI {

// Asks them one after the other; what one took the next may not take. Operators that nobody
// registered may stand in the graph. A partitioned node carries the subgraph under the name "body":
// input i of the node is input i of the body, and the like for outputs. A graph of which nothing is
// taken comes back as it was, and graphs inside nodes are not looked into. `report`, if given, is
// filled in when all went well.
//
// Errors name the partitioner, and nothing has changed: kNotFound for one that is not registered
// (with the nearest name) and for its subgraph operator; kInvalidArgument for a bad option;
// kFailedPrecondition where require_all leaves nodes outside; what is wrong with an answer; what a
// partitioner throws.
//
//   Graph out = Partition(graph, {{"myProp", {{"min_size", "2"}}}});
Graph Partition(const Graph& graph, const std::vector<PartitionerRequest>& partitioners,
                PartitionReport* report = nullptr);

// One partitioner: Partition(graph, "myProp", {{"min_size", "2"}}).
template <class Name>
  requires std::is_convertible_v<const Name&, std::string_view>
Graph Partition(const Graph& graph, const Name& partitioner, PartitionArguments options = {},
                PartitionReport* report = nullptr) {
  return Partition(graph,
                   std::vector<PartitionerRequest>{
                       {std::string(std::string_view(partitioner)), std::move(options)}},
                   report);
}

class Partitioner;

// Adds it to PartitionerRegistry::Global(). Never throws, for static initialisers: false, and an
// Error where the name is used, for a name that is registered already.
bool RegisterPartitioner(detail::IntrusivePtr<const Partitioner> partitioner, const char* file,
                         int line) noexcept;

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/partition/impl/partition.ipp"
#endif

#endif  // OPKIT_GRAPH_PARTITION_PARTITION_HPP_
