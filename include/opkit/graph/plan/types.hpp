// The options of a plan, and the kernel that it has selected for a node.
#ifndef OPKIT_GRAPH_PLAN_TYPES_HPP_
#define OPKIT_GRAPH_PLAN_TYPES_HPP_

#include "opkit/engine/schedule/replay_mode.hpp"
#include "opkit/graph/memory/types.hpp"
#include "opkit/graph/partition/request.hpp"
#include "opkit/graph/passes.hpp"
#include "opkit/graph/selection.hpp"
#include "opkit/op/kernel.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct PartitionReport;  // graph/partition/report.hpp

// The options of Compile.
struct PlanOptions {
  // Threads that run the plan, the caller's included; 0: those of ThreadPool::Global(). Any number
  // but that pool's gives the plan a pool of its own.
  int threads = 0;
  // Nodes are called in one fixed order, whatever the number of threads.
  bool deterministic = false;
  ReplayMode mode = ReplayMode::kAuto;
  // Passes to apply, in order, before kernels are selected; null: DefaultPasses().
  const PassList* passes = nullptr;
  // Partitioners, each of which may take parts of the graph and run them; called in order, after
  // the passes (Partition of graph/partition/partition.hpp). Only with partitioners may the graph
  // have operators that are not registered; Compile throws kNotFound if some remain.
  std::vector<PartitionerRequest> partitioners = {};
  // Filled in with the parts that partitioners took; may be null.
  PartitionReport* partition_report = nullptr;
  MemoryPlanOptions memory = {};
  // Backends to try for every node, in this order: after those that the node names, before those
  // preferred for the program (OpRegistry::SetPreference). Compile reads the program's preferences
  // once: shapes that the plan meets later use the same.
  std::vector<std::string> backends = {};
  // kRequired requires every backend that a node names. A backend that is only preferred for the
  // program or the plan must exist: Compile throws kNotFound instead of passing it over.
  BackendNeed backend_need = kPreferred;
  // Kernels that nodes must have, whatever the order of the backends. Compile throws if such a
  // kernel does not exist or does not take its node.
  Selection selection = {};
  // The quantity that selection makes small, for nodes without a forced kernel.
  // memory.capacity_bytes bounds the memory of the whole plan.
  SelectionObjective objective = SelectionObjective::kTime;
  // Devices for nodes that name none, in the order of preference: {cuda, cpu} takes CUDA if it is
  // available and has a kernel. Values are copied between neighbours on different devices. Empty:
  // the CPU.
  std::vector<Device> devices = {};
  // Inputs whose memory belongs to the plan from the start of a run on. If the last reader of such
  // an input may write in place, it writes an intermediate value or an output there. After the run,
  // the tensor given for the input holds undefined data, or is returned as an output. Compile
  // throws kNotFound for a name that is no input, and kInvalidArgument for an input that the graph
  // rewrites or returns.
  std::vector<std::string> donated_inputs = {};
  // Makes Compile drop the elements of constants that kernels read only in another layout or on
  // another device, so that weights do not take memory twice. The plan keeps the converted tensor,
  // and the original's dtype and shape. The memory is freed once the caller's graphs and tensors do
  // not share it either. Constants of subgraphs stay. Reading, saving or compiling a dropped
  // constant of Plan::graph() throws kUninitialized. Compile throws kInvalidArgument if the dtype
  // or the shape of an input is open, since another shape may need the original.
  bool release_constants = false;
  // Proves every memory plan with VerifyMemoryPlan. Without NDEBUG all but large plans are proved.
  bool verify_memory = false;
  // The number of sets of input shapes that the plan, and each executor, keeps; the least recently
  // used set is dropped.
  int max_shapes = 8;
};

// The kernel and the configuration that were selected for a node.
struct NodeChoice {
  const Kernel* kernel = nullptr;
  KernelConfig config;
  int config_number = 0;           // index among the kernel's proposals
  Device device;                   // where it runs
  int computed_by = -1;            // the node before it whose kernel computes both; -1: its own
  IntrusivePtr<RefCounted> owner;  // keeps the kernel's library loaded
  // Better candidates that could not be chosen, "\n  backend NAME: why" for each.
  std::string passed_over;
};

}}  // namespace opkit

#endif  // OPKIT_GRAPH_PLAN_TYPES_HPP_
