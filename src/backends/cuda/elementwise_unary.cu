#include "opkit/backends/cuda/ops/elementwise/unary.hpp"
