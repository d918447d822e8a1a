#include <opkit/backends/eigen/conv.hpp>
#include <opkit/backends/eigen/pool.hpp>
