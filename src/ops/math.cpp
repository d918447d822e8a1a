// Operators of opkit::ops that compute each element by itself.
#include "opkit/ops/math/arithmetic.hpp"
#include "opkit/ops/math/logic.hpp"
#include "opkit/ops/math/unary.hpp"
#include "opkit/ops/math/variadic.hpp"
