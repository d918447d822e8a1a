// Operators of opkit::ops of the domain ai.onnx.ml.
#include "opkit/ops/ml/tree_ensemble.hpp"
