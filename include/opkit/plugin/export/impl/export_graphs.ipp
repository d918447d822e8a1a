// Fills the hooks of plugin/load/abi_node.hpp.
#ifndef OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_GRAPHS_IPP_
#define OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_GRAPHS_IPP_

#include "opkit/plugin/export/export_graphs.hpp"
#include "opkit/plugin/load/abi_graph.hpp"

#endif  // OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_GRAPHS_IPP_
