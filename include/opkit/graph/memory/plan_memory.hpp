// PlanMemory: computes offsets in one arena for buffers with lifetimes, so that buffers that are
// live together do not overlap. It tries a portfolio of greedy orders, then searches within a
// budget.
#ifndef OPKIT_GRAPH_MEMORY_PLAN_MEMORY_HPP_
#define OPKIT_GRAPH_MEMORY_PLAN_MEMORY_HPP_

#include "opkit/graph/memory/arena.hpp"
#include "opkit/graph/memory/search_options.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Returns offsets for buffers that conflict if their spans of time overlap.
//
//   MemoryPlan plan = PlanMemory({{0, 2, 1024}, {1, 3, 512}, {2, 4, 1024}});
//   plan.arena_bytes;  // 1536
//
// Throws kInvalidArgument or kOutOfRange, with the buffer, if lower is not below upper, a size is
// negative, an alignment is no power of two, or the sizes add up to more than an int64 holds. For
// 100,000 buffers the portfolio alone takes less than a second.
MemoryPlan PlanMemory(const std::vector<MemoryInterval>& intervals,
                      const MemorySearchOptions& options = {});

// Returns offsets for buffers that conflict if `conflicts` lists them. For runs whose steps have
// more than one possible order: the spans are those of one such order. If the spans of two buffers
// overlap, `conflicts` must list these buffers too.
MemoryPlan PlanMemory(const std::vector<MemoryInterval>& buffers, const MemoryConflicts& conflicts,
                      const MemorySearchOptions& options = {});

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/memory/impl/plan_memory.ipp"
#endif
#endif  // OPKIT_GRAPH_MEMORY_PLAN_MEMORY_HPP_
