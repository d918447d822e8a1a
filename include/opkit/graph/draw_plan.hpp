// Pictures of a plan: its memory (time across, addresses up, a box for each value), and the graph
// as it runs.
#ifndef OPKIT_GRAPH_DRAW_PLAN_HPP_
#define OPKIT_GRAPH_DRAW_PLAN_HPP_

#include "opkit/graph/dot.hpp"
#include "opkit/graph/plan.hpp"

namespace opkit::inline OPKIT_ABI {

// An SVG document for the input shapes used last. The steps across are those of the stored order;
// where nodes run in another, boxes that could meet then do not overlap either. Values that share
// bytes in place are one box with both names; a value whose shape a run decides has the box of its
// bound, and "(at most)" behind its name. Errors: as Plan::memory(); kNotFound for a device
// that the plan has no arena on.
std::string DrawMemory(const Plan& plan, Device device = {});

// The graph for Graphviz, with the backend of each node and, in orange, the converters between
// layouts, for the shapes used last. Error as Plan::memory().
std::string ToDot(const Plan& plan, const DotOptions& options = {});

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/draw_plan.ipp"
#endif
#endif  // OPKIT_GRAPH_DRAW_PLAN_HPP_
