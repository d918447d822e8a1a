// FitByRecomputation: fits a plan's memory into its capacity by computing values again
// (PlanOptions::memory.recompute). Compile calls it after the passes, instead of specializing the
// graph as it is.
#ifndef OPKIT_GRAPH_PLAN_RECOMPUTED_GRAPH_HPP_
#define OPKIT_GRAPH_PLAN_RECOMPUTED_GRAPH_HPP_

#include "opkit/graph/memory/recompute.hpp"
#include "opkit/graph/plan/specialization.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

class PlanState;

// The steps of a specialization in the form that Recompute takes. A step is the nodes that one
// kernel computes. Converters are left out: they are inserted again for the new graph.
class RecomputedGraph {
 public:
  struct Rewritten {
    Graph graph;
    // For each node that runs again, two names in a selection: its original's and its own.
    std::vector<std::pair<std::string, std::string>> again;
  };

  // The problem counts only the bytes of values in the memory of this device.
  RecomputedGraph(const Specialization& found, Device memory);

  const RecomputeProblem& problem() const { return problem_; }
  // Returns the plan's graph with its nodes in the order of the run. `walked`: nodes run in that
  // order anyway. If not, a moved node waits for the last unmoved node before it, so that no thread
  // computes the moved node's value early.
  Rewritten Rewrite(const RecomputedRun& run, bool walked) const;

 private:
  class Writer;

  void AddStep(int node, Device memory, const NameIndex& waited_for);
  double CostOf(int node) const;

  const Specialization& found_;
  const GraphView& view_;                  // view of the plan's graph
  IndexedVector<std::vector<int>> parts_;  // by step: nodes of the plan's graph
  RecomputeProblem problem_;               // its values are those of the plan's graph
};

// Specializes the plan for the shapes of its graph; computes nodes again if the plan does not fit
// otherwise. Throws the errors of PlanState::Specialize.
void FitByRecomputation(PlanState& state);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/plan/impl/recomputed_graph.ipp"
#endif

#endif  // OPKIT_GRAPH_PLAN_RECOMPUTED_GRAPH_HPP_
