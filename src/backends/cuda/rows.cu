#include "opkit/backends/cuda/ops/rows/rows.hpp"
