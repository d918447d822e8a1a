// Operators of opkit::ops that are layers of networks: activations, windows, probabilities.
#include "opkit/ops/nn/activation.hpp"
#include "opkit/ops/nn/conv.hpp"
#include "opkit/ops/nn/conv_transpose.hpp"
#include "opkit/ops/nn/pool.hpp"
#include "opkit/ops/nn/softmax.hpp"
