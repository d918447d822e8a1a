// Kernels of opkit::eigen that compare and convert elements.
#include "opkit/backends/eigen/elementwise_logic.hpp"
#include "opkit/backends/eigen/elementwise_cast.hpp"
