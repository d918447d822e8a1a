#include "opkit/backends/cuda/ops/quantized/integer_products.hpp"
