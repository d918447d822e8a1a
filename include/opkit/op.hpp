// The header that the source of a library of operators includes; the single header of this name
// holds the same.
#ifndef OPKIT_OP_HPP_
#define OPKIT_OP_HPP_

#include "opkit/plugin/author.hpp"

#endif  // OPKIT_OP_HPP_
