#include "opkit/backends/cuda/ops/elementwise/scalar_function.hpp"
