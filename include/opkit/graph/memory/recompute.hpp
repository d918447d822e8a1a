// Recompute: chooses which values of a run are computed again before a late reader, instead of
// kept, so that fewer bytes are live at once. Works on plain numbers, without a graph;
// plan/recomputed_graph.hpp makes them from a plan that needs more memory than it may have.
#ifndef OPKIT_GRAPH_MEMORY_RECOMPUTE_HPP_
#define OPKIT_GRAPH_MEMORY_RECOMPUTE_HPP_

#include <cstdint>
#include <utility>
#include <vector>

#include "opkit/base/indexed_vector.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Steps that run one after the other, and the values between them. A value that no step makes is
// there when the run starts, and takes no bytes.
struct RecomputeProblem {
  struct Step {
    detail::IndexedVector<int> inputs, outputs;  // values, each once
    // Pairs {i, o}: outputs[o] may take the bytes of inputs[i] if this step reads that input last.
    std::vector<std::pair<int, int>> in_place = {};
    double cost = 1;  // cost of running the step once more
    int64_t scratch_bytes = 0;
    bool repeatable = true;  // may run again, and later than at its place here
  };
  detail::IndexedVector<Step> steps;
  detail::IndexedVector<int64_t> bytes;  // by value: its bytes; 0 for a value that lies elsewhere
  detail::IndexedVector<uint8_t> kept;   // by value: 1 if it is read after the run
};

// The order of steps that Recompute returns; a step of the problem may run several times.
struct RecomputedRun {
  struct Step {
    int step = 0;             // the step's number in the problem
    std::vector<int> makers;  // by input: the place in `steps` of its maker; -1: none
    bool again = false;       // the same step has run before
    bool moved = false;       // stands at another place than in the problem
  };
  std::vector<Step> steps;
  int64_t peak_bytes = 0;   // the most bytes that are live at once
  int64_t given_bytes = 0;  // the same for the steps in their given order, each run once
  int64_t least_bytes = 0;  // the most bytes that one step touches: no run needs less
  double added_cost = 0;    // cost of the steps that run again
  double given_cost = 0;    // cost of all steps, each run once
};

// Returns a run of the problem's steps in which at most `bytes` are live at once; if it finds none,
// a run with as few bytes as it finds. Greedy rematerialization: while more bytes are live, one
// step is run again, or later. The chosen step removes the most excess bytes, summed over all
// places of the run, for its cost. If values that it reads are gone by then, their steps run again
// before it. At the end, unnecessary repeated steps are dropped. XLA's HloRematerialization and
// Kusumoto et al. (2019) choose by such a ratio. Chen et al. (2016, "Training Deep Nets with
// Sublinear Memory Cost") run whole segments of a chain again, each before its first reader.
//
// Time is quadratic in the steps. Throws kInvalidArgument, with the step or the value, for a value
// that is out of range, made twice or made after it is read; an in-place pair out of range;
// negative bytes or costs.
RecomputedRun Recompute(const RecomputeProblem& problem, int64_t bytes);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/memory/impl/recompute.ipp"
#endif
#endif  // OPKIT_GRAPH_MEMORY_RECOMPUTE_HPP_
