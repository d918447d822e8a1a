#include "opkit/backends/cuda/ops/rearrange.hpp"
