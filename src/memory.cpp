// The compiled runtime: the memory planner, with lifetimes, placing and proof.
#include "opkit/graph/memory/impl/lifetimes.ipp"
#include "opkit/graph/memory/impl/node_order.ipp"
#include "opkit/graph/memory/impl/plan_memory.ipp"
#include "opkit/graph/memory/impl/problem.ipp"
#include "opkit/graph/memory/impl/recompute.ipp"
#include "opkit/graph/memory/impl/verify.ipp"
