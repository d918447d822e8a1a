#include "opkit/backends/cuda/ops/quantized/quantize_linear.hpp"
