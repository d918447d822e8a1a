#include "opkit/backends/cuda/ops/conv.hpp"
