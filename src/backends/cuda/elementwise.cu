#include "opkit/backends/cuda/ops/elementwise.hpp"
