// Fills the hooks of op/boundary/convert/abi_node.hpp and of op/inference.hpp.
#ifndef OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_GRAPHS_IPP_
#define OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_GRAPHS_IPP_

#include "opkit/graph/abi_graph.hpp"
#include "opkit/op/boundary/host/host_inference.hpp"
#include "opkit/plugin/export/export_graphs.hpp"

#endif  // OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_GRAPHS_IPP_
