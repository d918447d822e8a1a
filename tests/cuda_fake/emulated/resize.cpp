#include "opkit/backends/cuda/ops/moving/resize.hpp"
