#include "opkit/backends/cuda/ops/moving/reshape.hpp"
