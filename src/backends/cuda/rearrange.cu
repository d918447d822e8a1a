#include "opkit/backends/cuda/ops/moving/rearrange.hpp"
