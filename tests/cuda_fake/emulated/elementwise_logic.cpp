#include "opkit/backends/cuda/ops/elementwise/logic.hpp"
