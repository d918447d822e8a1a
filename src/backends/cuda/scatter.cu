#include "opkit/backends/cuda/ops/scatter.hpp"
