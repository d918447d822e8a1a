// Lets the nodes of a library's operators carry graphs between the library and its host. Included
// if a unit includes both graph.hpp and plugin/author.hpp. The headers fill the hooks of
// abi_node.hpp and of op/inference.hpp.
#ifndef OPKIT_PLUGIN_EXPORT_EXPORT_GRAPHS_HPP_
#define OPKIT_PLUGIN_EXPORT_EXPORT_GRAPHS_HPP_

#include "opkit/config.hpp"

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/abi_graph.hpp"
#include "opkit/op/boundary/host/host_inference.hpp"
#endif

#endif  // OPKIT_PLUGIN_EXPORT_EXPORT_GRAPHS_HPP_
