#include <opkit/backends/eigen/elementwise_cast.hpp>
#include <opkit/backends/eigen/elementwise_logic.hpp>
#include <opkit/backends/eigen/transpose.hpp>
#include <opkit/ops/concat.hpp>
#include <opkit/ops/expand.hpp>
#include <opkit/ops/reshape.hpp>
#include <opkit/ops/shape_of.hpp>
#include <opkit/ops/slice.hpp>
