// Pictures of a plan: its memory, and the graph that runs.
#ifndef OPKIT_GRAPH_DRAW_PLAN_HPP_
#define OPKIT_GRAPH_DRAW_PLAN_HPP_

#include "opkit/graph/dot.hpp"
#include "opkit/graph/plan.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Returns an SVG document of the memory for the input shapes used last: time to the right,
// addresses upwards, a box for each value. Time is counted in steps of the stored order. Nodes may
// run in another order: values that can be live at once then have different addresses too. Values
// that share bytes in place are one box with both names. If a run decides a value's shape, its box
// shows the largest size, with "(at most)" behind the name. Throws the errors of Plan::memory(),
// and kNotFound for a device on which the plan has no arena.
std::string ToSvg(const Plan& plan, Device device = {});

// Returns the graph for Graphviz, for the shapes used last, with the backend of each node.
// Converters between layouts are orange. Throws the errors of Plan::memory().
std::string ToDot(const Plan& plan, const DotOptions& options = {});

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/draw_plan.ipp"
#endif
#endif  // OPKIT_GRAPH_DRAW_PLAN_HPP_
