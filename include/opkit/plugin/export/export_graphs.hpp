// Lets the nodes of a library's operators carry graphs, from its host and to it. Included if a unit
// includes both graph.hpp and plugin/author.hpp.
#ifndef OPKIT_PLUGIN_EXPORT_EXPORT_GRAPHS_HPP_
#define OPKIT_PLUGIN_EXPORT_EXPORT_GRAPHS_HPP_

#include "opkit/config.hpp"

#ifdef OPKIT_DEFINITIONS
#include "opkit/plugin/export/impl/export_graphs.ipp"
#endif

#endif  // OPKIT_PLUGIN_EXPORT_EXPORT_GRAPHS_HPP_
