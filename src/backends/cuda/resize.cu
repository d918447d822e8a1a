#include "opkit/backends/cuda/ops/resize.hpp"
