// The operators of the demo's models, and no others, in a few files: a program that needs few of
// them is compiled sooner this way than by linking opkit::ops and opkit::eigen, which are all of
// them.
#include <opkit/backends/eigen/elementwise_activation.hpp>
#include <opkit/backends/eigen/elementwise_arithmetic.hpp>
#include <opkit/backends/eigen/elementwise_unary.hpp>
