#include "opkit/backends/cuda/ops/matmul.hpp"
