// The whole toolkit that needs a compiler and nothing else. Standard operators (opkit/ops/…),
// third-party backends (opkit/backends/…) and bridges (opkit/interop/…) are included by name.
#ifndef OPKIT_OPKIT_HPP_
#define OPKIT_OPKIT_HPP_

#include "opkit/config.hpp"
#include "opkit/macros.hpp"
#include "opkit/version.hpp"

#include "opkit/base/registry.hpp"
#include "opkit/core/attribute.hpp"
#include "opkit/core/channels_last.hpp"
#include "opkit/core/dlpack.hpp"
#include "opkit/core/layout_registry.hpp"
#include "opkit/core/symbolic_shape.hpp"
#include "opkit/core/tensor.hpp"

#include "opkit/device/context.hpp"
#include "opkit/device/copy.hpp"
#include "opkit/device/cpu_stream.hpp"
#include "opkit/device/event.hpp"
#include "opkit/device/invocation.hpp"

#include "opkit/engine/context_parallel_for.hpp"
#include "opkit/engine/engine.hpp"
#include "opkit/engine/naive_engine.hpp"
#include "opkit/engine/parallel_for.hpp"
#include "opkit/engine/task_graph.hpp"
#include "opkit/engine/task_group.hpp"
#include "opkit/engine/thread_pool.hpp"

#include "opkit/profile/profile_diff.hpp"
#include "opkit/profile/profiler.hpp"

#include "opkit/op/create_operator.hpp"
#include "opkit/op/dispatch_helper.hpp"
#include "opkit/op/function/function_operator.hpp"
#include "opkit/op/gradient/gradient.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/op/kernel_candidates.hpp"
#include "opkit/op/observers.hpp"
#include "opkit/op/operator.hpp"
#include "opkit/op/registration.hpp"
#include "opkit/op/schema/schema_docs.hpp"
#include "opkit/op/typed_operator.hpp"

#include "opkit/graph/dot.hpp"
#include "opkit/graph/draw_plan.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/graph/fwd.hpp"
#include "opkit/graph/gradient/gradients.hpp"
#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/memory/lifetimes.hpp"
#include "opkit/graph/memory/plan_memory.hpp"
#include "opkit/graph/memory/verify.hpp"
#include "opkit/graph/partition/extract.hpp"
#include "opkit/graph/partition/partition.hpp"
#include "opkit/graph/partition/register_partitioner.hpp"
#include "opkit/graph/passes/named_pass.hpp"
#include "opkit/graph/print/memory_csv.hpp"
#include "opkit/graph/print/memory_svg.hpp"
#include "opkit/graph/print/print.hpp"
#include "opkit/graph/run_profile.hpp"
#include "opkit/graph/simple_net.hpp"
#include "opkit/graph/subgraph.hpp"

#include "opkit/plugin/library.hpp"

#ifdef OPKIT_LIBRARY_FINALIZE  // after author.hpp: what the unit registers is handed over as well
#include "opkit/plugin/export/export_operators.hpp"
#endif

#endif  // OPKIT_OPKIT_HPP_
