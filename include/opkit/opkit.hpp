// Umbrella to define, register and call operators: tensors and attributes, devices, ParallelFor,
// OPKIT_OP, REGISTER_CPU_OPERATOR, CreateOperator, Invoke. More is in opkit/graph.hpp,
// opkit/functions.hpp (REGISTER_OP), opkit/profile.hpp, opkit/partition.hpp and opkit/plugin.hpp;
// opkit/all.hpp has all of these. The standard operators (opkit/ops/…), the backends
// (opkit/backends/…) and the bridges (opkit/interop/…) are included by name.
#ifndef OPKIT_OPKIT_HPP_
#define OPKIT_OPKIT_HPP_

#include "opkit/config.hpp"
#include "opkit/macros.hpp"
#include "opkit/not_included.hpp"
#include "opkit/version.hpp"

#include "opkit/core/attribute.hpp"
#include "opkit/core/symbolic_shape.hpp"
#include "opkit/core/tensor.hpp"

#include "opkit/device/context.hpp"
#include "opkit/device/copy.hpp"
#include "opkit/device/cpu_stream.hpp"
#include "opkit/device/event.hpp"
#include "opkit/device/invocation.hpp"

#include "opkit/engine/context_parallel_for.hpp"
#include "opkit/engine/parallel_for.hpp"

#include "opkit/op/create_operator.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/op/operator.hpp"
#include "opkit/op/registration.hpp"
#include "opkit/op/typed_operator.hpp"

#ifdef OPKIT_PLUGIN_AUTHOR_HPP_  // in a library: exports its registrations to the host
#include "opkit/plugin/export/export_operators.hpp"
#endif
#if defined OPKIT_PLUGIN_AUTHOR_HPP_ && defined OPKIT_OP_GRADIENT_GRADIENT_HPP_
#include "opkit/plugin/export/export_gradients.hpp"
#endif

#endif  // OPKIT_OPKIT_HPP_
