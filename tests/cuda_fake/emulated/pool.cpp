#include "opkit/backends/cuda/ops/pool.hpp"
