#include "opkit/backends/cuda/ops/moving/pad.hpp"
