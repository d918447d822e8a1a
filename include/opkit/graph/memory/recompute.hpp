// Recompute: which values of a run are computed again before a late reader, instead of kept, so
// that fewer bytes are live at once. Plain numbers: it knows no graph, and
// plan/recomputed_graph.hpp makes them of a plan that needs more memory than it may have.
#ifndef OPKIT_GRAPH_MEMORY_RECOMPUTE_HPP_
#define OPKIT_GRAPH_MEMORY_RECOMPUTE_HPP_

#include <cstdint>
#include <utility>
#include <vector>

#include "opkit/config.hpp"

namespace opkit::inline OPKIT_ABI {

// Steps that run one after the other, and the values between them. A value that no step makes is
// there when the run starts, and takes nothing.
struct RecomputeProblem {
  struct Step {
    std::vector<int> inputs, outputs;  // values, each once
    // Pairs {i, o}: outputs[o] may take the bytes of inputs[i] where that dies here.
    std::vector<std::pair<int, int>> in_place = {};
    double cost = 1;  // of running it once more
    int64_t scratch_bytes = 0;
    bool repeatable = true;  // it may run again, and later than here
  };
  std::vector<Step> steps;
  std::vector<int64_t> bytes;  // of each value; 0 for what lies elsewhere
  std::vector<uint8_t> kept;   // of each value: read after the run
};

struct RecomputedRun {
  struct Step {
    int step = 0;             // of the problem
    std::vector<int> makers;  // of each input: the place in `steps` of what makes it; -1: none does
    bool again = false;       // it has run before
    bool moved = false;       // it stands at another place than it was given
  };
  std::vector<Step> steps;
  int64_t peak_bytes = 0;   // the most that are live at once
  int64_t given_bytes = 0;  // the same of the problem
  int64_t least_bytes = 0;  // the most that one step touches: no run needs less
  double added_cost = 0;    // of the steps that run again
  double given_cost = 0;    // of all steps, once each
};

// A run of the problem's steps in which at most `bytes` are live at once or, where none is found,
// as few as were. Greedy rematerialization: while more are live, that step is run again, or later,
// which takes most of the excess away, summed over all places of the run, for its cost; before it,
// the steps whose values it reads and that are gone by then. At the end steps are dropped that need
// not run again after all. XLA's HloRematerialization and Kusumoto et al. (2019) choose by such a
// ratio; that segments of a chain are run again as a whole where their first reader comes is of
// Chen et al. (2016, "Training Deep Nets with Sublinear Memory Cost").
//
// Takes time by the square of the steps. Errors (kInvalidArgument) name the step or the value: a
// value out of range, made twice or made after it is read; an in-place pair out of range; negative
// bytes or costs.
RecomputedRun Recompute(const RecomputeProblem& problem, int64_t bytes);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/memory/impl/recompute.ipp"
#endif
#endif  // OPKIT_GRAPH_MEMORY_RECOMPUTE_HPP_
