#include "opkit/backends/cuda/ops/pad.hpp"
