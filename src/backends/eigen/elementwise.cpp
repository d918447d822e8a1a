// Kernels of opkit::eigen that compute each element by itself.
#include "opkit/backends/eigen/elementwise_activation.hpp"
#include "opkit/backends/eigen/elementwise_arithmetic.hpp"
#include "opkit/backends/eigen/elementwise_unary.hpp"
