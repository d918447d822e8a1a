#include "opkit/backends/cuda/ops/rows/loss.hpp"
