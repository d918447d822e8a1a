// Operators of opkit::ops that combine the elements of rows: sums, products, extremes.
#include "opkit/ops/math/reduce.hpp"
#include "opkit/ops/math/arg.hpp"
#include "opkit/ops/math/matmul.hpp"
#include "opkit/ops/topk.hpp"
