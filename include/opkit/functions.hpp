// Umbrella for operators made of plain functions, in MXNet's spelling:
// REGISTER_OP(name).setForward(…)…; with AttrMap, OpTensor and OpResource. Brings opkit/opkit.hpp
// too. A library of operators includes opkit/op.hpp instead.
#ifndef OPKIT_FUNCTIONS_HPP_
#define OPKIT_FUNCTIONS_HPP_

#include "opkit/opkit.hpp"

#include "opkit/op/function/function_operator.hpp"

#endif  // OPKIT_FUNCTIONS_HPP_
