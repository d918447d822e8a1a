#include <opkit/backends/eigen/matmul.hpp>
#include <opkit/backends/eigen/normalization.hpp>
#include <opkit/backends/eigen/reduce.hpp>
#include <opkit/backends/eigen/softmax.hpp>
