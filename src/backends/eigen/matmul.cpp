// Kernels of opkit::eigen that multiply matrices.
#include "opkit/backends/eigen/matmul.hpp"
#include "opkit/backends/eigen/attention.hpp"
#include "opkit/backends/eigen/recurrent.hpp"
#include "opkit/backends/eigen/transpose.hpp"
