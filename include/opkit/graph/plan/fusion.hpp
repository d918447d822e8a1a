// Fusion in plans, for programs with kernels that can compute the next node too (Fuse). In
// header-only use, one file of the program must include this header, or a plan of such kernels
// throws.
#ifndef OPKIT_GRAPH_PLAN_FUSION_HPP_
#define OPKIT_GRAPH_PLAN_FUSION_HPP_

#include "opkit/graph/plan/fused_graph.hpp"
#include "opkit/op/fusion.hpp"

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/plan/impl/fused_graph.ipp"
#endif

#endif  // OPKIT_GRAPH_PLAN_FUSION_HPP_
