// Umbrella for partitioners, which cut parts out of a graph for another runtime
// (REGISTER_PARTITIONER), and for passes: PassList, DefaultPasses, and passes by name
// (REGISTER_PASS). Brings opkit/graph.hpp too.
#ifndef OPKIT_PARTITION_HPP_
#define OPKIT_PARTITION_HPP_

#include "opkit/graph.hpp"

#include "opkit/graph/partition/extract.hpp"
#include "opkit/graph/partition/partition.hpp"
#include "opkit/graph/partition/register_partitioner.hpp"
#include "opkit/graph/passes.hpp"
#include "opkit/graph/passes/named_pass.hpp"

#ifdef OPKIT_PLUGIN_AUTHOR_HPP_  // in a library: exports its registrations to the host
#include "opkit/plugin/export/export_partitioners.hpp"
#endif

#endif  // OPKIT_PARTITION_HPP_
