#include "opkit/backends/cuda/ops/rows/reduce_norm.hpp"
