// CompareRuns: runs two plans of one graph on the same inputs and compares the outputs of their
// nodes, to find the first node whose result is wrong.
#ifndef OPKIT_GRAPH_DEBUG_COMPARE_RUNS_HPP_
#define OPKIT_GRAPH_DEBUG_COMPARE_RUNS_HPP_

#include "opkit/graph/executor.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The tolerances of CompareRuns. An element differs if |found - expected| > atol + rtol *
// |expected|, as in numpy.allclose. Integers, bools and strings must be equal. An infinity equals
// only itself; a NaN equals any NaN. Sequences and optional values must have as many elements,
// which are compared one by one.
struct CompareRunsOptions {
  double rtol = 1e-3;
  double atol = 1e-5;
  // If true, nodes of the expected plan read the values that the first plan's run made. Each node
  // is then compared by itself: an error does not spread to later nodes, and rounding does not add
  // up. If false, the two runs are independent.
  bool node_by_node = true;
};

// One value that both runs have.
struct ComparedValue {
  std::string name;
  std::string node;  // "Conv 'c1'": the node that makes it in the first plan
  // The kernels that computed it: the backend, and the kernel's variant if it has one.
  std::string backend, expected_backend;
  // The operator that makes it in the expected plan, if that is another one than in the first plan.
  std::string expected_operator = {};
  bool same_kernel = false;  // both runs used the same kernel
  bool differs = false;
  int64_t elements = 0;
  int64_t different = 0;  // number of elements that differ
  // The largest |found - expected|; infinite if only one of them is a NaN; 0 for strings.
  double max_abs = 0;
  // The largest |found - expected| / |expected| among elements whose expected is not 0.
  double max_rel = 0;
  // The index of the first element that differs. In a sequence the position of the tensor comes
  // before the index in that tensor; a tensor of another dtype or shape is one element.
  std::vector<int64_t> first = {};
  // The first different element in each run; the types of the value if these differ, since no
  // element is compared then.
  std::string found = {}, expected = {};
};

// The result of CompareRuns.
struct RunComparison {
  std::vector<ComparedValue> values;  // in topological order of the first plan's nodes
  // Values that only one run has, because a kernel computes several nodes together or a partitioner
  // took some of them.
  std::vector<std::string> not_compared;
  int first_different = -1;  // index in `values`; -1: no value differs
  CompareRunsOptions options;

  bool same() const { return first_different < 0; }
  // Returns one sentence: the first value that differs, with its node and element.
  std::string Verdict() const;
};

// Returns a table with a line for each value, and the verdict.
std::string ToString(const RunComparison& runs);

// Runs `plan` and then `expected`, each on copies of the inputs, and compares their values. The
// plans may differ in backends, passes or threads: the comparison shows the effect. Nodes that draw
// random numbers differ. Even with node_by_node, a node reads its own run's value if a node
// rewrites the value or if it is in memory that the host cannot access. Throws kInvalidArgument for
// a negative or NaN tolerance and for plans with nodes that have no common value, and the errors of
// Executor::Run.
//
//   const Plan expected = Compile(graph, {.backends = {"reference"}});
//   const RunComparison runs = CompareRuns(Compile(graph), expected, {{"X", x}});
//   if (!runs.same()) std::puts(ToString(runs).c_str());
RunComparison CompareRuns(const Plan& plan, const Plan& expected,
                          const std::vector<NamedTensor>& inputs,
                          const CompareRunsOptions& options = {});

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/debug/impl/compare_runs.ipp"
#endif

#endif  // OPKIT_GRAPH_DEBUG_COMPARE_RUNS_HPP_
