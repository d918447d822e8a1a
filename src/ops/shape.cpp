// Operators of opkit::ops that change shapes.
#include "opkit/ops/concat.hpp"
#include "opkit/ops/expand.hpp"
#include "opkit/ops/reshape.hpp"
#include "opkit/ops/shape_of.hpp"
#include "opkit/ops/slice.hpp"
#include "opkit/ops/transpose.hpp"
