#include "opkit/backends/cuda/ops/rows/order.hpp"
