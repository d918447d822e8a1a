#include "opkit/backends/cuda/ops/rows/normalization.hpp"
