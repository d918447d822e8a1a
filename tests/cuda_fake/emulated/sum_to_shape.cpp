#include "opkit/backends/cuda/ops/sum_to_shape.hpp"
