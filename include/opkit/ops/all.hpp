// All standard operators: schemas and reference kernels. The headers of ops/ and backends/ are
// included by src/ alone, mostly, whose units are opkit::ops and the backends' targets: link those
// with CMake. Programs that compile the operators themselves include this header in one unit.
//
// They are classes with schemas of their own, not functions under OPKIT_OP, which derives one
// schema and one kernel from a signature: ONNX fixes these schemas, and the kernels of several
// backends share the inference of one.
#ifndef OPKIT_OPS_ALL_HPP_
#define OPKIT_OPS_ALL_HPP_

#include "opkit/ops/cast.hpp"
#include "opkit/ops/concat.hpp"
#include "opkit/ops/control_flow.hpp"
#include "opkit/ops/expand.hpp"
#include "opkit/ops/gather.hpp"
#include "opkit/ops/generators.hpp"
#include "opkit/ops/identity.hpp"
#include "opkit/ops/math/arg.hpp"
#include "opkit/ops/math/arithmetic.hpp"
#include "opkit/ops/math/logic.hpp"
#include "opkit/ops/math/matmul.hpp"
#include "opkit/ops/math/reduce.hpp"
#include "opkit/ops/math/unary.hpp"
#include "opkit/ops/math/variadic.hpp"
#include "opkit/ops/nn/activation.hpp"
#include "opkit/ops/nn/conv.hpp"
#include "opkit/ops/nn/conv_transpose.hpp"
#include "opkit/ops/nn/layer_normalization.hpp"
#include "opkit/ops/nn/normalization.hpp"
#include "opkit/ops/nn/pool.hpp"
#include "opkit/ops/nn/recurrent.hpp"
#include "opkit/ops/nn/resize.hpp"
#include "opkit/ops/nn/softmax.hpp"
#include "opkit/ops/non_zero.hpp"
#include "opkit/ops/one_hot.hpp"
#include "opkit/ops/pad.hpp"
#include "opkit/ops/reshape.hpp"
#include "opkit/ops/scatter.hpp"
#include "opkit/ops/shape_of.hpp"
#include "opkit/ops/slice.hpp"
#include "opkit/ops/subgraph.hpp"
#include "opkit/ops/support/axes.hpp"
#include "opkit/ops/support/body_operator.hpp"
#include "opkit/ops/support/broadcast.hpp"
#include "opkit/ops/support/broadcast_loop.hpp"
#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_size.hpp"
#include "opkit/ops/support/element_sum.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/elementwise.hpp"
#include "opkit/ops/support/integer_inputs.hpp"
#include "opkit/ops/support/node_gradient.hpp"
#include "opkit/ops/support/recurrent_function.hpp"
#include "opkit/ops/support/resize_axis.hpp"
#include "opkit/ops/support/standard_operator.hpp"
#include "opkit/ops/support/strided_copy.hpp"
#include "opkit/ops/support/table_copy.hpp"
#include "opkit/ops/support/window.hpp"
#include "opkit/ops/topk.hpp"
#include "opkit/ops/transpose.hpp"
#include "opkit/ops/trilu.hpp"
#include "opkit/ops/where.hpp"

#endif  // OPKIT_OPS_ALL_HPP_
