// For programs of kernels that take the next node in (Fuse): how plans fuse them. Header-only, one
// file of the program includes it, or a plan of such kernels is an Error.
#ifndef OPKIT_GRAPH_PLAN_FUSION_HPP_
#define OPKIT_GRAPH_PLAN_FUSION_HPP_

#include "opkit/graph/plan/fused_graph.hpp"

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/plan/impl/fused_graph.ipp"
#endif

#endif  // OPKIT_GRAPH_PLAN_FUSION_HPP_
