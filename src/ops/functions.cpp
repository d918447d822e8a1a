// Operators of opkit::ops that compute each element by a function that few models use.
#include "opkit/ops/math/bitwise.hpp"
#include "opkit/ops/math/scalar_function.hpp"
