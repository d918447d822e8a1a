#include "opkit/backends/cuda/ops/elementwise/cast.hpp"
