#include "opkit/backends/cuda/ops/reshape.hpp"
