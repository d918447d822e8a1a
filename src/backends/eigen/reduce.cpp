// Kernels of opkit::eigen that reduce, normalize and transform lines.
#include "opkit/backends/eigen/reduce.hpp"
#include "opkit/backends/eigen/fourier.hpp"
#include "opkit/backends/eigen/layer_normalization.hpp"
#include "opkit/backends/eigen/normalization.hpp"
#include "opkit/backends/eigen/softmax.hpp"
