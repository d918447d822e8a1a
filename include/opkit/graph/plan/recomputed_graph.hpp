// FitByRecomputation: a plan whose memory fits its capacity since values are computed again
// (MemoryPlanOptions::recompute). Compile calls it after the passes, in place of specializing the
// graph as it is.
#ifndef OPKIT_GRAPH_PLAN_RECOMPUTED_GRAPH_HPP_
#define OPKIT_GRAPH_PLAN_RECOMPUTED_GRAPH_HPP_

#include "opkit/graph/memory/recompute.hpp"
#include "opkit/graph/plan/specialization.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

class PlanState;

// The steps of a specialization as Recompute takes them. A step is the nodes that one kernel
// computes; converters are left out, since they follow the nodes that they stand between.
class RecomputedGraph {
 public:
  struct Rewritten {
    Graph graph;
    // The names in a selection of each node that runs again: of its original, and of itself.
    std::vector<std::pair<std::string, std::string>> again;
  };

  // The problem's bytes are those of the values in the memory of this device.
  RecomputedGraph(const Specialization& found, Device memory);

  const RecomputeProblem& problem() const { return problem_; }
  // The plan's graph with its nodes in the order of the run. Unless nodes are walked in that order,
  // one that is moved waits for the one that stands before it, so that no thread makes its value
  // early.
  Rewritten Rewrite(const RecomputedRun& run, bool walked) const;

 private:
  class Writer;

  void AddStep(int node, Device memory, const NameIndex& waited_for);
  double CostOf(int node) const;

  const Specialization& found_;
  const GraphView& view_;                // of the plan's graph
  std::vector<std::vector<int>> parts_;  // by step: nodes of the plan's graph
  RecomputeProblem problem_;             // its values are those of the plan's graph
};

// Specializes the plan for the shapes of its graph, with nodes computed again where it does not fit
// otherwise. Errors: as PlanState::Specialize.
void FitByRecomputation(PlanState& state);

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/plan/impl/recomputed_graph.ipp"
#endif

#endif  // OPKIT_GRAPH_PLAN_RECOMPUTED_GRAPH_HPP_
