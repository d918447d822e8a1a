#include "opkit/backends/cuda/ops/rotary_embedding.hpp"
