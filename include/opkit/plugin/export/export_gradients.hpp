// Exports the gradients of a library's class and typed operators to its host. Included if a unit
// includes both op/gradient/gradient.hpp and plugin/author.hpp.
#ifndef OPKIT_PLUGIN_EXPORT_EXPORT_GRADIENTS_HPP_
#define OPKIT_PLUGIN_EXPORT_EXPORT_GRADIENTS_HPP_

#include "opkit/config.hpp"

#ifdef OPKIT_DEFINITIONS
#include "opkit/plugin/export/impl/export_gradients.ipp"
#endif

#endif  // OPKIT_PLUGIN_EXPORT_EXPORT_GRADIENTS_HPP_
