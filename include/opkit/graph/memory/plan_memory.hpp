// PlanMemory: buffers with lifetimes in, offsets in one arena out, so that no two that are live
// together overlap. A portfolio of greedy orders first, then a search within a budget.
#ifndef OPKIT_GRAPH_MEMORY_PLAN_MEMORY_HPP_
#define OPKIT_GRAPH_MEMORY_PLAN_MEMORY_HPP_

#include "opkit/graph/memory/types.hpp"

namespace opkit::inline OPKIT_ABI {

// Offsets for buffers that conflict where their spans of time overlap.
//
//   MemoryPlan plan = PlanMemory({{0, 2, 1024}, {1, 3, 512}, {2, 4, 1024}});
//   plan.arena_bytes;  // 1536
//
// Errors (kInvalidArgument, kOutOfRange) name the buffer: lower not below upper, a negative size,
// an alignment that is no power of two, sizes that add up to more than an int64 holds. 100,000
// buffers take less than a second by the portfolio alone.
MemoryPlan PlanMemory(const std::vector<MemoryInterval>& intervals,
                      const MemoryPlanOptions& options = {});

// Offsets for buffers that conflict as `conflicts` says, for those whose order in time is partial.
// The spans are those of one legal order: where two overlap, the conflict must be listed too.
MemoryPlan PlanMemory(const std::vector<MemoryInterval>& buffers, const MemoryConflicts& conflicts,
                      const MemoryPlanOptions& options = {});

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/memory/impl/plan_memory.ipp"
#endif
#endif  // OPKIT_GRAPH_MEMORY_PLAN_MEMORY_HPP_
