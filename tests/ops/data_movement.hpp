// Support for the tests of operators that move data: tensors whose elements show where they come
// from.
#ifndef OPKIT_TESTS_OPS_DATA_MOVEMENT_HPP_
#define OPKIT_TESTS_OPS_DATA_MOVEMENT_HPP_

#include <doctest/doctest.h>

#include <cmath>

#include "infer.hpp"
#include "opkit/interop/doctest.hpp"
#include "opkit/op/check.hpp"
#include "opkit/op/check/check_data.hpp"
#include "opkit/op/invoke.hpp"
#include "support/check_node.hpp"
#include "support/error_of.hpp"
#include "support/tensors.hpp"

namespace opkit_tests {

using namespace opkit;

// Indices, extents and axes.
inline Tensor List(const Ints& values) { return Vector<int64_t>(values); }

}  // namespace opkit_tests

#endif  // OPKIT_TESTS_OPS_DATA_MOVEMENT_HPP_
