// Operators of opkit::ops of the domain ai.onnx.ml.
#include "opkit/ops/ml/category_mapper.hpp"
#include "opkit/ops/ml/features.hpp"
#include "opkit/ops/ml/linear.hpp"
#include "opkit/ops/ml/preprocessing.hpp"
#include "opkit/ops/ml/svm.hpp"
#include "opkit/ops/ml/tree_ensemble.hpp"
