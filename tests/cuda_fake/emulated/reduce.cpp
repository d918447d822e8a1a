#include "opkit/backends/cuda/ops/rows/reduce.hpp"
