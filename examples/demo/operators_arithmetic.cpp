// Registers only the operators of the demo's models, in a few files. A program with few operators
// compiles faster this way than with opkit::ops and opkit::eigen, which have all of them.
#include <opkit/backends/eigen/elementwise_activation.hpp>
#include <opkit/backends/eigen/elementwise_arithmetic.hpp>
#include <opkit/backends/eigen/elementwise_unary.hpp>
