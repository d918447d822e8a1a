#include "opkit/backends/cuda/ops/elementwise/chain.hpp"
