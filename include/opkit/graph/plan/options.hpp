// PlanOptions: the options of Compile, in groups: the schedule, the kernels, the memory.
#ifndef OPKIT_GRAPH_PLAN_OPTIONS_HPP_
#define OPKIT_GRAPH_PLAN_OPTIONS_HPP_

#include "opkit/engine/schedule/replay_mode.hpp"
#include "opkit/graph/memory/search_options.hpp"
#include "opkit/graph/partition/request.hpp"
#include "opkit/graph/plan/process_link.hpp"
#include "opkit/graph/selection.hpp"
#include "opkit/op/operator_def.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class PassList;  // opkit/partition.hpp

// The options of Compile.
struct PlanOptions {
  // How the steps of a run are called.
  struct ScheduleOptions {
    // Nodes are called in one fixed order, whatever the number of threads.
    bool deterministic = false;
    ReplayMode mode = ReplayMode::kAuto;
    // The threads of a run take denormal numbers (below 1.2e-38 in float32) as zeros, in operands
    // and in results. Many CPUs compute with denormal numbers a hundred times slower: sound that
    // fades out in a recursive filter is an example. The mode of the caller's thread is put back
    // when the run ends or fails, and work of other plans on the same threads is not affected.
    // Nodes that Compile evaluates are not flushed, and threads that an operator's library starts
    // by itself have their own mode. Compile throws kUnsupported on a CPU other than x86 and ARM64.
    bool flush_denormals = false;
    // The steps of a run on one CUDA device are recorded and repeated as a CUDA graph, which costs
    // the host one launch (graph/plan/recorded_runs.hpp). ToString(plan) says why runs of a plan
    // are not recorded. With false, each run calls each operator.
    bool capture = true;
  };

  // Which kernels run the nodes, beside PlanOptions::backends and PlanOptions::devices.
  struct SelectionOptions {
    // Kernels that nodes must have, whatever the order of the backends. Compile throws if such a
    // kernel does not exist or does not take its node, or if the graph has no such node. It passes
    // over a choice that is not `required`.
    Selection forced = {};
    // The quantity that selection makes small, for nodes without a forced kernel.
    // PlanOptions::memory.capacity_bytes bounds the memory of the whole plan.
    Selection::Objective objective = Selection::Objective::kTime;
  };

  // Kernels by measurement. A program that uses it includes opkit/graph/tune/tune.hpp.
  struct TuningOptions {
    enum class Use : uint8_t {
      kNone,    // kernels by the order of the backends and their estimates
      kCached,  // those that the cache has for this graph, its shapes and this machine, if any
      // The same; where the cache has none, Compile measures (Tune) and adds them. A graph that
      // cannot run on random inputs keeps the kernels of kNone.
      kMeasure,
    };
    Use use = Use::kNone;
    std::string cache = {};  // a file (TuningCache); empty: TuningCache::DefaultPath()
    double seconds = 20;     // the time that Compile may measure, for each set of input shapes
    // With kMeasure: a thread of the plan measures, while runs take the kernels by the usual rules.
    // Executors take over the tuned plan between two runs; with MemoryOptions::release_constants
    // the next Compile does. The plan's end waits for the measurement of a plan that is in
    // progress.
    bool online = false;
  };

  // Where the values of a run lie, and which of the caller's memory the plan may use.
  struct MemoryOptions {
    MemorySearchOptions search = {};
    // The most bytes that an arena may have; 0: any number. Planning throws kOutOfMemory for a
    // graph that needs more. The message lists the values that are live at the peak.
    int64_t capacity_bytes = 0;
    // Reorders nodes that run one after the other, if fewer bytes are then live at the peak. The
    // results of a graph do not change. The order of side effects may change if no edge fixes it.
    bool reorder_nodes = false;
    // Makes Compile compute values again just before a late reader if the plan would otherwise
    // need more than capacity_bytes (graph/memory/recompute.hpp). Compile chooses few and cheap
    // nodes, by the costs of their schemas, until the plan fits. Nodes that are stateful,
    // random, rewrite a value or run a graph never run twice. The second run of a node "y" has
    // the name "y#again", and so have its values; MemorySummary and Explain count these nodes.
    // Compile throws kInvalidArgument without capacity_bytes, or if the dtype or shape of an
    // input is unknown, since each shape would need its own graph. Costs Compile up to
    // kRecomputeTries more plans, and searches whose time is quadratic in the nodes: about 0.1 s
    // each for 1,000.
    bool recompute = false;
    static constexpr int kRecomputeTries = 8;
    // For values whose shape a run decides (NonZero): the plan knows only their largest size. The
    // arena has room for such a value if its largest size is at most this number of bytes. A larger
    // value has a buffer of its own, which grows with the runs. If the arena would exceed
    // capacity_bytes, all of these values have buffers of their own.
    int64_t most_bound_bytes = int64_t{64} << 20;
    // Inputs whose memory belongs to the plan from the start of a run on. If the last reader of
    // such an input may write in place, it writes an intermediate value or an output there. After
    // the run, the tensor given for the input holds undefined data, or is returned as an output.
    // Compile throws kNotFound for a name that is no input, and kInvalidArgument for an input that
    // the graph rewrites or returns.
    std::vector<std::string> donated_inputs = {};
    // Makes Compile drop the elements of constants that kernels read only in another layout or on
    // another device, so that weights do not take memory twice. The plan keeps the converted
    // tensor, and the original's dtype and shape. The memory is freed once the caller's graphs and
    // tensors do not share it either. Constants of subgraphs stay. Reading, saving or compiling a
    // dropped constant of Plan::graph() throws kUninitialized. Compile throws kInvalidArgument if
    // the dtype or shape of an input is unknown, since another shape may need the original.
    bool release_constants = false;
    // Proves every memory plan with VerifyMemoryPlan. Without NDEBUG all but large plans are
    // proved.
    bool verify = false;
  };

  // The part of the graph that this process runs, if several processes run it together.
  struct ClusterOptions {
    // The number of the process, from 0, and the number of processes; -1 and 0: those of the
    // communicator, or one process. Both may be given without a communicator, to look at the part
    // of a process. Such a plan does not run: a node that communicates throws
    // kFailedPrecondition.
    int process = -1;
    int processes = 0;
    // The communicator of this process (a Communicator of opkit/cluster/communicator.hpp). All
    // processes must compile the same graphs in the same order: Compile of each process waits for
    // the others, compares the graphs, and throws kInvalidArgument with the first difference. Each
    // plan gets a communicator of its own.
    detail::IntrusivePtr<detail::ProcessLink> communicator = {};

    // Returns the number of processes; 1 if no option gives it.
    int CountProcesses() const {
      if (processes > 0) return processes;
      return communicator ? communicator->processes() : 1;
    }
  };

  // Threads that run the plan, including the caller's; 0: the threads of ThreadPool::Global().
  // Another number than the size of that pool gives the plan its own pool.
  int threads = 0;
  ScheduleOptions schedule = {};
  // Passes to apply, in order, before kernels are selected; null: DefaultPasses(). Only Compile
  // reads the list.
  const PassList* passes = nullptr;
  // Partitioners, each of which may take parts of the graph and run them; called in order, after
  // the passes (Partition of graph/partition/partition.hpp). Plan::partition_report() has the parts
  // that they took. Only with partitioners may the graph have operators that are not registered;
  // Compile throws kNotFound if some remain.
  std::vector<PartitionerRequest> partitioners = {};
  // Backends to try for every node, in this order: after those that the node names, before those
  // preferred for the program (OpRegistry::SetPreference). Compile reads the program's preferences
  // once: shapes that the plan meets later use the same.
  std::vector<std::string> backends = {};
  // kRequired requires every backend that a node names. A backend that is only preferred for the
  // program or the plan must exist: Compile throws kNotFound instead of passing it over.
  OperatorDef::BackendNeed backend_need = kPreferred;
  SelectionOptions selection = {};
  TuningOptions tuning = {};
  // Devices for nodes that name none, in the order of preference: {cuda, cpu} takes CUDA if it is
  // available and has a kernel. Values are copied between neighbours on different devices. Empty:
  // the CPU.
  std::vector<Device> devices = {};
  MemoryOptions memory = {};
  ClusterOptions cluster = {};
  // The number of sets of input shapes that the plan, and each executor, keeps; the least recently
  // used set is dropped.
  int max_shapes = 8;
};

}}  // namespace opkit

#endif  // OPKIT_GRAPH_PLAN_OPTIONS_HPP_
