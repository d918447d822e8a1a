#include "opkit/backends/cuda/ops/rows.hpp"
