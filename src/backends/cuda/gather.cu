#include "opkit/backends/cuda/ops/moving/gather.hpp"
