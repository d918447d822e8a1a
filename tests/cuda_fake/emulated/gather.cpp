#include "opkit/backends/cuda/ops/gather.hpp"
