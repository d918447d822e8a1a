#include "opkit/backends/cuda/ops/moving/scatter.hpp"
