// CompareRuns: runs two plans of one graph on the same inputs and compares what their nodes make,
// one after the other: the first that differs is where a result goes wrong.
#ifndef OPKIT_GRAPH_DEBUG_COMPARE_RUNS_HPP_
#define OPKIT_GRAPH_DEBUG_COMPARE_RUNS_HPP_

#include "opkit/graph/executor.hpp"

namespace opkit::inline OPKIT_ABI {

// An element differs where |found - expected| > atol + rtol * |expected|, as in numpy.allclose.
// Integers and bools must be equal. An infinity is equal to itself alone, and NaN to NaN.
struct CompareRunsOptions {
  double rtol = 1e-3;
  double atol = 1e-5;
  // Nodes of the expected plan read what the first plan's run made, so that each is compared by
  // itself: what is wrong in one is not so in all behind it, and rounding does not add up from node
  // to node. False: two runs apart from each other.
  bool node_by_node = true;
};

// One value that both runs have.
struct ComparedValue {
  std::string name;
  std::string node;  // "Conv 'c1'", what makes it in the first plan
  // What computed it in each run: a backend, or the operator that stands there for the node.
  std::string backend, expected_backend;
  bool same_kernel = false;  // in both runs
  bool differs = false;
  int64_t elements = 0;
  int64_t different = 0;  // of the elements
  double max_abs = 0;     // the largest |found - expected|; infinite for a NaN in one run alone
  double max_rel = 0;     // the largest |found - expected| / |expected|, zeros left out
  std::vector<int64_t> first = {};  // the index of the first element that differs
  // That element in each run; or the types, where these differ and no element is compared.
  std::string found = {}, expected = {};
};

struct RunComparison {
  std::vector<ComparedValue> values;  // in an order in which the nodes of the first plan can run
  // Values in one run alone: kernels compute several nodes together, partitioners take some.
  std::vector<std::string> not_compared;
  int first_different = -1;  // in `values`; -1: none differs
  CompareRunsOptions options;

  bool same() const { return first_different < 0; }
  // One sentence: the first value that differs, with its node and element.
  std::string Verdict() const;
  // A line for each value, and the verdict.
  std::string ToText() const;
};

// Runs both, each on copies of the inputs, `expected` second. What the plans differ in is what is
// compared: kernels of other backends, the passes, threads. Nodes that draw random numbers differ.
// Values that nodes rewrite, and those that the host does not reach, are those of each run also
// node by node. Errors: kInvalidArgument for a tolerance that is negative or NaN, and for
// plans that have no value in common; as Executor::Run.
//
//   const Plan expected = Compile(graph, {.backends = {"reference"}});
//   const RunComparison runs = CompareRuns(Compile(graph), expected, {{"X", x}});
//   if (!runs.same()) std::puts(runs.ToText().c_str());
RunComparison CompareRuns(const Plan& plan, const Plan& expected,
                          const std::vector<NamedTensor>& inputs,
                          const CompareRunsOptions& options = {});

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/debug/impl/compare_runs.ipp"
#endif

#endif  // OPKIT_GRAPH_DEBUG_COMPARE_RUNS_HPP_
