// Umbrella for graphs of operators: Graph, inference, Compile, Plan, Executor, AddGradients,
// printing and drawing. Brings opkit/opkit.hpp too. Partitioners and passes are in
// opkit/partition.hpp, REGISTER_GRADIENT in opkit/op/gradient/gradient.hpp, SimpleNet in
// opkit/graph/simple_net.hpp, readers of model files in opkit/interop/.
#ifndef OPKIT_GRAPH_HPP_
#define OPKIT_GRAPH_HPP_

#include "opkit/opkit.hpp"

#include "opkit/core/sequence.hpp"

#include "opkit/graph/dot.hpp"
#include "opkit/graph/draw_plan.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/graph/fwd.hpp"
#include "opkit/graph/gradient/gradients.hpp"
#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/print/print.hpp"
#include "opkit/graph/subgraph.hpp"

#ifdef OPKIT_PLUGIN_AUTHOR_HPP_  // in a library: exports its operators with graphs or gradients
#include "opkit/plugin/export/export_gradients.hpp"
#include "opkit/plugin/export/export_graphs.hpp"
#endif

#endif  // OPKIT_GRAPH_HPP_
