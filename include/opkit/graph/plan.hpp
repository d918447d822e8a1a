// Plan: a frozen graph, made once by Compile: checked, rewritten by passes, kernels selected, nodes
// scheduled, memory planned. Executors run it, as often and as many at once as one likes.
#ifndef OPKIT_GRAPH_PLAN_HPP_
#define OPKIT_GRAPH_PLAN_HPP_

#include "opkit/graph/explanation.hpp"
#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/plan/types.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {
class PlanState;
}

// A handle; copies are the same plan. Thread-safe.
class Plan {
 public:
  Plan(const Plan& other);
  Plan& operator=(const Plan& other);
  ~Plan();

  // The graph as it runs, after the passes, and its view. After
  // PlanOptions::release_constants the converted constants in it lack their elements.
  const Graph& graph() const;
  const GraphView& view() const;
  int threads() const;

  // Whether the shapes of all inputs are known, from the graph or the last run.
  bool has_shapes() const;
  // The types of all values: for the newest shapes of a run, or of the graph; before the first run
  // of a graph that leaves some open, what holds for any: float32[N, 3].
  GraphTypes types() const;
  // The type of one. Error (kNotFound) that names the nearest value.
  TensorInfo type(std::string_view value) const;
  // The memory that a run takes. Error (kFailedPrecondition) unless has_shapes().
  MemorySummary memory() const;
  // The kernel selected for a node of graph(), which may compute other nodes of the same backend
  // with it (Explain tells); Error as for memory().
  NodeChoice choice(int node) const;
  // The kernels of all nodes, to be saved or forced on another plan; but for nodes that the kernel
  // of another one computes, as it does again there. Error as for memory().
  Selection selection() const;
  // Why each node has its kernel, and what conversions between layouts cost; Error as for memory().
  Explanation Explain() const;

  // For people: the schedule, the memory plan, the kernel selected for each node, for the shapes of
  // the last run or for these, by input: Describe({{"X", {1, 3, 224, 224}}}). Unless has_shapes(),
  // the nodes and their types.
  std::string Describe() const;
  std::string Describe(const std::vector<std::pair<std::string, Shape>>& shapes) const;

  // For executors.
  const detail::IntrusivePtr<detail::PlanState>& state() const { return state_; }

 private:
  friend Plan Compile(const Graph& graph, const PlanOptions& options);
  explicit Plan(detail::IntrusivePtr<detail::PlanState> state);

  detail::IntrusivePtr<detail::PlanState> state_;
};

// Makes a plan of a graph, which is copied. When all inputs have shapes, kernels are selected and
// memory is planned at once; otherwise for each set of shapes at its first run. Errors: what is
// wrong with the graph (Check, InferGraph), a pass or its result, an operator's constructor.
//
//   Plan plan = Compile(g, {.threads = 2});
//   Executor exec(plan);
//   auto out = exec.Run({{"X", x}});
//   out.at("Y");
Plan Compile(const Graph& graph, const PlanOptions& options = {});

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/plan.ipp"
#endif
#endif  // OPKIT_GRAPH_PLAN_HPP_
