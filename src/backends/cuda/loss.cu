#include "opkit/backends/cuda/ops/loss.hpp"
