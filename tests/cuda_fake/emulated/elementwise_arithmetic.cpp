#include "opkit/backends/cuda/ops/elementwise/arithmetic.hpp"
