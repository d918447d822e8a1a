// Operators of opkit::ops that move elements by indices.
#include "opkit/ops/gather.hpp"
#include "opkit/ops/non_zero.hpp"
#include "opkit/ops/one_hot.hpp"
#include "opkit/ops/pad.hpp"
#include "opkit/ops/scatter.hpp"
#include "opkit/ops/trilu.hpp"
