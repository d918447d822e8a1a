#include "opkit/backends/cuda/ops/reduce_norm.hpp"
