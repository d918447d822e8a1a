#include "opkit/backends/cuda/ops/rows/cumulative.hpp"
