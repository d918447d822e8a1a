#include "opkit/backends/cuda/ops/random.hpp"
