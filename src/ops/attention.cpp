// Operators of opkit::ops that transformers use.
#include "opkit/ops/nn/attention.hpp"
#include "opkit/ops/indexing/tensor_scatter.hpp"
#include "opkit/ops/nn/causal_conv.hpp"
#include "opkit/ops/nn/group_normalization.hpp"
#include "opkit/ops/nn/linear_attention.hpp"
#include "opkit/ops/nn/rotary_embedding.hpp"
