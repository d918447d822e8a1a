#include "opkit/backends/cuda/ops/rows/pool.hpp"
