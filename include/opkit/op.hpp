// Umbrella for the source of a library of operators. The single header of this name holds the same
// code.
#ifndef OPKIT_OP_HPP_
#define OPKIT_OP_HPP_

#include "opkit/plugin/author.hpp"

#endif  // OPKIT_OP_HPP_
