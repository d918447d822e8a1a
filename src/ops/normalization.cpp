// Operators of opkit::ops that normalize, and the other large layers.
#include "opkit/ops/nn/normalization.hpp"
#include "opkit/ops/nn/layer_normalization.hpp"
#include "opkit/ops/nn/recurrent.hpp"
#include "opkit/ops/nn/recurrent_gradient.hpp"
#include "opkit/ops/nn/resize.hpp"
