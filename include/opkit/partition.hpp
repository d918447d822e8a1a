// Parts of a graph for a runtime of your own: REGISTER_PARTITIONER and what cuts the graph, and
// REGISTER_PASS, passes by name. Brings opkit/graph.hpp too.
#ifndef OPKIT_PARTITION_HPP_
#define OPKIT_PARTITION_HPP_

#include "opkit/graph.hpp"

#include "opkit/graph/partition/extract.hpp"
#include "opkit/graph/partition/partition.hpp"
#include "opkit/graph/partition/register_partitioner.hpp"
#include "opkit/graph/passes/named_pass.hpp"

#ifdef OPKIT_PLUGIN_AUTHOR_HPP_  // a library's unit: what it registers is handed over as well
#include "opkit/plugin/export/export_partitioners.hpp"
#endif

#endif  // OPKIT_PARTITION_HPP_
