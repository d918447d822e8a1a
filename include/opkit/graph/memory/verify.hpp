// VerifyMemoryPlan: proves a memory plan from the run's edges and the addresses alone, or throws
// the fault. It shares no code with lifetimes.hpp and the planner, so that a mistake in their code
// is not repeated here.
#ifndef OPKIT_GRAPH_MEMORY_VERIFY_HPP_
#define OPKIT_GRAPH_MEMORY_VERIFY_HPP_

#include <string>
#include <vector>

#include "opkit/graph/memory/arena.hpp"
#include "opkit/graph/memory/run_order.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Throws kFailedPrecondition if a legal run could overwrite bytes that are still needed, or if a
// value is outside the arena or misaligned. `addresses` has the first byte of each value in the
// arena; those of external values, and of views of them, are ignored. `names` may be empty. Runs
// and values that FindLifetimes refuses must not be passed.
//
// Takes time quadratic in the values, plus steps times edges / 64.
void VerifyMemoryPlan(const detail::RunOrder& run,
                      const detail::IndexedVector<detail::RunValue>& values,
                      const std::vector<detail::InPlaceOption>& in_place,
                      const detail::IndexedVector<int64_t>& addresses, int64_t arena_bytes,
                      const std::vector<std::string>& names = {});

// Verifies a plan for buffers that conflict if their spans overlap or `conflicts` lists them.
void VerifyMemoryPlan(const std::vector<MemoryInterval>& buffers, const MemoryConflicts& conflicts,
                      const MemoryPlan& plan);
void VerifyMemoryPlan(const std::vector<MemoryInterval>& intervals, const MemoryPlan& plan);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/memory/impl/verify.ipp"
#endif
#endif  // OPKIT_GRAPH_MEMORY_VERIFY_HPP_
