// Partition: lets partitioners take nodes of a graph, cuts these into subgraphs that can run as one
// node, and replaces each accepted subgraph by an operator of its partitioner.
#ifndef OPKIT_GRAPH_PARTITION_PARTITION_HPP_
#define OPKIT_GRAPH_PARTITION_PARTITION_HPP_

#include "opkit/graph/graph_subgraph.hpp"
#include "opkit/graph/partition/report.hpp"
#include "opkit/graph/partition/request.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Runs the partitioners one after the other. A later partitioner may not take the nodes that an
// earlier one made, unless it has the option see_taken. The graph may contain unregistered
// operators. A new node carries its subgraph under the name "body": input i of the node is input i
// of the body, output i is output i. Subgraphs inside nodes are not partitioned. If no node is
// taken, returns the graph unchanged. Sets `report`, if given, unless an error occurs.
//
// A partitioner may have several strategies, which are registered as "name.first", "name.second".
// A request for "name" runs all of them, in the order of their registration.
//
// Errors name the partitioner. Throws kNotFound for an unregistered partitioner (with the nearest
// name) or subgraph operator, kInvalidArgument for an invalid option, and kFailedPrecondition if
// require_all is set and nodes stay outside. Throws the errors of PartitionAnswer, of the graph
// (Check, InferGraph) and of the partitioner's functions.
//
//   Graph out = Partition(graph, {{"myProp", {{"min_size", "2"}}}});
Graph Partition(const Graph& graph, const std::vector<PartitionerRequest>& partitioners,
                PartitionReport* report = nullptr);

// Runs one partitioner: Partition(graph, "myProp", {{"min_size", "2"}}).
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

// Adds the partitioner to PartitionerRegistry::Global(). Returns false if the name is registered
// already. Never throws, so that static initialisers can call it: if the name was registered at
// another place, PartitionerRegistry::Get throws.
bool RegisterPartitioner(detail::IntrusivePtr<const Partitioner> partitioner, const char* file,
                         int line) noexcept;

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/partition/impl/partition.ipp"
#endif

#endif  // OPKIT_GRAPH_PARTITION_PARTITION_HPP_
