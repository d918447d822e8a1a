// Umbrella of everything that needs a compiler and no other library: the other headers of this
// folder except opkit/op.hpp, plus the engine of variables, task graphs, layouts and observers.
// Standard operators (opkit/ops/…), backends (opkit/backends/…) and bridges (opkit/interop/…) are
// included by name. The unit that defines OPKIT_IMPLEMENTATION usually includes this header.
#ifndef OPKIT_ALL_HPP_
#define OPKIT_ALL_HPP_

#include "opkit/functions.hpp"
#include "opkit/graph.hpp"
#include "opkit/opkit.hpp"
#include "opkit/partition.hpp"
#include "opkit/plugin.hpp"
#include "opkit/profile.hpp"

#include "opkit/core/channels_last.hpp"
#include "opkit/core/dlpack.hpp"
#include "opkit/core/layout_registry.hpp"
#include "opkit/core/packed.hpp"
#include "opkit/core/sequence.hpp"

#include "opkit/engine/engine.hpp"
#include "opkit/engine/task_graph.hpp"
#include "opkit/engine/task_group.hpp"
#include "opkit/engine/thread_pool.hpp"

#include "opkit/op/fusion.hpp"
#include "opkit/op/gradient/gradient.hpp"
#include "opkit/op/kernel_candidates.hpp"
#include "opkit/op/observers.hpp"
#include "opkit/op/schema/schema_docs.hpp"

#include "opkit/graph/debug/compare_runs.hpp"
#include "opkit/graph/debug/run_values.hpp"
#include "opkit/graph/memory/lifetimes.hpp"
#include "opkit/graph/memory/plan_memory.hpp"
#include "opkit/graph/memory/verify.hpp"
#include "opkit/graph/passes/batch_normalization.hpp"
#include "opkit/graph/passes/half_precision.hpp"
#include "opkit/graph/passes/hard_swish.hpp"
#include "opkit/graph/passes/quantized_nodes.hpp"
#include "opkit/graph/plan/converters.hpp"
#include "opkit/graph/plan/fusion.hpp"
#include "opkit/graph/print/memory_svg.hpp"
#include "opkit/graph/run_profile.hpp"
#include "opkit/graph/simple_net.hpp"

#endif  // OPKIT_ALL_HPP_
