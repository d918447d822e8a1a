#include "opkit/backends/cuda/ops/moving/generators.hpp"
