// Operators of opkit::ops that compute each element by a function that few models use, and losses.
#include "opkit/ops/math/bitwise.hpp"
#include "opkit/ops/math/scalar_function.hpp"
#include "opkit/ops/nn/loss.hpp"
