// Kernels of opkit::eigen that reduce and normalize.
#include "opkit/backends/eigen/reduce.hpp"
#include "opkit/backends/eigen/layer_normalization.hpp"
#include "opkit/backends/eigen/normalization.hpp"
#include "opkit/backends/eigen/softmax.hpp"
