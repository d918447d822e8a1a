// Plan: a frozen graph. Compile makes it: checks the graph, rewrites it by passes, selects kernels,
// schedules nodes and plans memory. Any number of executors run a plan at once.
#ifndef OPKIT_GRAPH_PLAN_HPP_
#define OPKIT_GRAPH_PLAN_HPP_

#include "opkit/graph/explanation.hpp"
#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/memory/summary.hpp"
#include "opkit/graph/plan/node_choice.hpp"
#include "opkit/graph/plan/options.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {
class PlanState;
}
struct PartitionReport;  // opkit/partition.hpp

// A handle: copies refer to the same plan. Thread-safe.
class Plan {
 public:
  Plan(const Plan& other);
  Plan& operator=(const Plan& other);
  ~Plan();

  // The graph that runs, after the passes and partitioners, and its view. With
  // PlanOptions::memory.release_constants, some of its constants have lost their elements.
  const Graph& graph() const;
  const GraphView& view() const;
  int threads() const;

  // True if the shapes of all inputs are known, from the graph or the last run.
  bool has_shapes() const;
  // Returns the types of all values for the input shapes used last. If shapes of inputs are unknown
  // and nothing has run yet, returns types that hold for any shapes: float32[N, 3].
  GraphTypes types() const;
  // Returns the type of one value. Throws kNotFound, with the nearest name, for an unknown name.
  TensorInfo type(std::string_view value) const;
  // Returns the memory that a run takes. Throws kFailedPrecondition unless has_shapes(); so do
  // choice, selection and Explain.
  MemorySummary memory() const;
  // Returns the kernel selected for a node of graph(). One kernel may compute several nodes
  // (Explanation::Node::parts). Throws kOutOfRange for an index that the graph does not have.
  NodeChoice choice(int node) const;
  // Returns the kernels of all nodes, to save them or force them on another plan. Omits a node that
  // the kernel of another node computes: that kernel does so in the other plan too.
  Selection selection() const;
  // Returns the parts of the graph that PlanOptions::partitioners took, and why other nodes stay. A
  // handle of the plan keeps the report alive. Throws kFailedPrecondition without partitioners.
  const PartitionReport& partition_report() const;
  // Explains why each node has its kernel, and the cost of conversions between layouts.
  Explanation Explain() const;

  // The state that executors of the plan share.
  const detail::IntrusivePtr<detail::PlanState>& state() const { return state_; }

 private:
  friend Plan Compile(const Graph& graph, const PlanOptions& options);
  explicit Plan(detail::IntrusivePtr<detail::PlanState> state);

  detail::IntrusivePtr<detail::PlanState> state_;
};

// Returns text for people: the schedule, the memory plan and each node's kernel, for the shapes of
// the last run or for the given shapes: ToString(plan, {{"X", {1, 3, 224, 224}}}). Without known
// shapes: the nodes and their types.
std::string ToString(const Plan& plan);
std::string ToString(const Plan& plan, const std::vector<std::pair<std::string, Shape>>& shapes);

// Makes a plan of a copy of the graph. If the graph declares the dtype and shape of every input,
// selects kernels and plans memory at once, else for each set of shapes at its first run. Throws
// the errors of Check and InferGraph, of a pass or its result, and of operators' constructors.
//
//   Plan plan = Compile(g, {.threads = 2});
//   Executor exec(plan);
//   auto out = exec.Run({{"X", x}});
//   out.Get("Y");
Plan Compile(const Graph& graph, const PlanOptions& options = {});

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/plan.ipp"
#endif
#endif  // OPKIT_GRAPH_PLAN_HPP_
