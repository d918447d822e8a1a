// Operators of opkit::ops that few models use: functions of one element, losses, norms,
// determinants.
#include "opkit/ops/math/bitwise.hpp"
#include "opkit/ops/math/det.hpp"
#include "opkit/ops/math/scalar_function.hpp"
#include "opkit/ops/nn/loss.hpp"
#include "opkit/ops/nn/mean_variance_normalization.hpp"
#include "opkit/ops/nn/row_normalization.hpp"
