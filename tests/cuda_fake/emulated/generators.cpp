#include "opkit/backends/cuda/ops/generators.hpp"
