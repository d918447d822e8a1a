// Operators of opkit::ops that make quantised tensors or compute with them.
#include "opkit/ops/quantized/byte_elements.hpp"
#include "opkit/ops/quantized/conv_integer.hpp"
#include "opkit/ops/quantized/dynamic_quantize_linear.hpp"
#include "opkit/ops/quantized/dynamic_quantize_lstm.hpp"
#include "opkit/ops/quantized/matmul_integer.hpp"
#include "opkit/ops/quantized/matmul_nbits.hpp"
#include "opkit/ops/quantized/matmul_to_float.hpp"
#include "opkit/ops/quantized/quantize_linear.hpp"
