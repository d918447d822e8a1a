#include "opkit/backends/cuda/ops/reduce.hpp"
