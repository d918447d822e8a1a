#include "opkit/backends/cuda/ops/normalization.hpp"
