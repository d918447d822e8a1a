// Umbrella for the host's side of libraries of operators: Library::Load. Brings opkit/opkit.hpp and
// opkit/functions.hpp too. The source of a library includes opkit/op.hpp.
#ifndef OPKIT_PLUGIN_HPP_
#define OPKIT_PLUGIN_HPP_

#include "opkit/functions.hpp"
#include "opkit/opkit.hpp"

#include "opkit/plugin/library.hpp"

#endif  // OPKIT_PLUGIN_HPP_
