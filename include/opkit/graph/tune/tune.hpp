// Tune: chooses the kernels of a graph by measurement, on the machine and with the threads on which
// the graph will run.
#ifndef OPKIT_GRAPH_TUNE_TUNE_HPP_
#define OPKIT_GRAPH_TUNE_TUNE_HPP_

#include <string>
#include <vector>

#include "opkit/base/unique_function.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/graph/plan.hpp"
#include "opkit/graph/plan/plan_state.hpp"
#include "opkit/graph/tune/tuning_cache.hpp"
#include "opkit/profile/timing/energy_counter.hpp"
#include "opkit/profile/timing/interleaved_times.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The quantity that Tune makes small.
enum class TuneObjective : uint8_t {
  kTime,    // of a run
  kMemory,  // TuneResult::Plan::bytes; of equal plans the fastest
  kEnergy,  // joules of a run, by TuneOptions::energy
};

// How far Tune has come.
struct TuneProgress {
  const char* stage = "";   // "measuring", "comparing"
  double seconds = 0;       // since the start
  double most_seconds = 0;  // TuneOptions::seconds
  int plans = 0;            // measured so far
  double speedup = 1;       // of the fastest plan so far against the default plan
};

// The options of Tune.
struct TuneOptions {
  // The options of the plan that will run. Tune keeps its forced kernels as they are, and donates
  // no inputs.
  PlanOptions plan = {};
  // The inputs of the runs that are timed. Inputs that are missing get random elements; their
  // shapes must be known.
  std::vector<NamedTensor> inputs = {};
  TuneObjective objective = TuneObjective::kTime;
  // The most bytes that the chosen plan may take; 0: any number.
  int64_t most_bytes = 0;
  // Executors that run the plan at the same time, each on a thread of its own beside those of the
  // plan. With more than one, the time of a run is the time in which all executors run once,
  // divided by their number: Tune then seeks the most runs a second, not the shortest run.
  int executors = 1;
  // Also tries plans that take less memory, for TuneResult::Pareto.
  bool pareto = false;
  EnergyCounter* energy = nullptr;  // needed for TuneObjective::kEnergy; else may be null
  // The time that tuning may take. It ends earlier when it has nothing left to try. The default
  // plan and one other are always measured.
  double seconds = 20;
  // The probability, at most, that chance alone makes another plan than the default the result.
  double significance = 0.01;
  // The cache whose times Tune takes, and to which it adds those that it measures; null: none. The
  // caller saves it.
  TuningCache* cache = nullptr;
  // Called between measurements; tuning ends with what it has measured when it returns false.
  mutable UniqueFunction<bool(const TuneProgress&)> progress = {};
  uint64_t seed = 1;             // of the random inputs and of the order of the runs
  TimingClock* clock = nullptr;  // null: that of the machine
};

// The result of Tune.
struct TuneResult {
  // A plan that was measured as a whole, in turns with the others.
  struct Plan {
    std::string name;  // "default", "eigen first", "tuned 3"
    Selection selection;
    CallTimes times;       // of a run
    int64_t bytes = 0;     // of its arenas, scratch included, and of its converted constants
    double joules = -1;    // of a run; -1: not measured
    double speedup = 1;    // of its median against the default plan's
    double p = 1;          // probability of such a difference by chance (Mann-Whitney, Holm)
    double predicted = 0;  // ns, the sum of what was measured of its nodes; 0: not predicted
  };
  // The measured times of a node, alone or with the nodes that its kernel computes too.
  struct Node {
    struct Way {
      std::string way;                       // "onednn on cpu, onednn aBcd16b -> onednn aBcd16b"
      double median = 0, low = 0, high = 0;  // ns, and the 95 % confidence interval
    };
    std::string name;
    std::string work;        // the operator, its attributes and types
    int chosen = -1;         // index in `ways`; -1: computed by the kernel of an earlier node
    bool is_default = true;  // the default plan has the same
    std::vector<Way> ways;   // those that were measured, the fastest first
  };

  // The choice for PlanOptions::selection.forced: that of plans[best].
  Selection selection;
  size_t best = 0;          // 0, the default, if no plan is faster beyond noise
  std::vector<Plan> plans;  // the default first
  std::vector<Node> nodes;
  // The cost of the best assignment of kernels to nodes by what was measured, and the least cost
  // that any assignment can have.
  double predicted_ns = 0, lower_bound_ns = 0;
  int plans_measured = 0;  // to learn the costs of nodes
  int configurations = 0;  // of which a time is known
  int from_cache = 0;      // of these, those that the cache had
  double seconds = 0;      // that tuning took
  // Returns the indices of the plans for which no other plan is both faster and smaller, the
  // fastest first.
  std::vector<size_t> Pareto() const;
  bool is_complete = false;  // false: the time was over, or `progress` said stop
};

// Measures whole plans of the graph and, in them, the time of each node, and chooses the kernels,
// layouts and variants with which a run takes least time:
//
// 1. The default plan and a plan for each backend run, with the threads of the options. That gives
//    the costs of their nodes and conversions as they are in the graph: with neighbours that have
//    run before, and what the caches then hold.
// 2. The best assignment for the costs known so far is found (SolveAssignment). Configurations that
//    were not measured count with a favourable guess, so that the assignment contains those that
//    could matter. Its plan is measured in turns with the default plan, until an assignment has
//    only measured costs.
// 3. The fastest plans, the default and those of each backend run in turns. The fastest of them is
//    the result, or the default if it is not faster beyond noise.
//
// Throws the errors of Compile and of runs; kInvalidArgument if the shape of an input is unknown,
// and for kEnergy without a counter; kOutOfMemory if no plan that was found has at most most_bytes.
//
//   const TuneResult tuned = Tune(graph, {.plan = {.threads = 2}, .inputs = {{"X", x}}});
//   std::puts(ToString(tuned).c_str());
//   Plan plan = Compile(graph, {.threads = 2, .selection = {.forced = tuned.selection}});
TuneResult Tune(const Graph& graph, const TuneOptions& options = {});

namespace detail {
// Returns the kernels that the cache has for the plan's graph and these inputs; an empty selection
// if it has none. With TuningOptions::Use::kMeasure measures first, on random inputs, and saves the
// cache; returns an empty selection if the graph cannot run on them.
OPKIT_IMAGE_LOCAL Selection TunedKernels(const PlanState& state,
                                         const std::vector<TensorInfo>& inputs);
OPKIT_IMAGE_LOCAL inline const bool kFillsTunedKernels = g_tuned_kernels.Fill(&TunedKernels);
// Adds what the cache has of the nodes of the plan's latest specialization.
OPKIT_IMAGE_LOCAL void AddMeasured(const PlanState& state, Explanation& explanation);
OPKIT_IMAGE_LOCAL inline const bool kFillsAddMeasured = g_add_measured.Fill(&AddMeasured);
}  // namespace detail

// A table of the plans and, with `nodes`, of the nodes whose kernel is not that of the default
// plan.
std::string ToString(const TuneResult& result, bool nodes = true);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/tune/impl/plan_tuning.ipp"
#include "opkit/graph/tune/impl/tune.ipp"
#include "opkit/graph/tune/impl/tune_result.ipp"
#endif

#endif  // OPKIT_GRAPH_TUNE_TUNE_HPP_
