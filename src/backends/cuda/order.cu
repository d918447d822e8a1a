#include "opkit/backends/cuda/ops/order.hpp"
