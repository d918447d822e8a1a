// Kernels of opkit::eigen that move windows over images.
#include "opkit/backends/eigen/conv.hpp"
#include "opkit/backends/eigen/conv_transpose.hpp"
#include "opkit/backends/eigen/pool.hpp"
