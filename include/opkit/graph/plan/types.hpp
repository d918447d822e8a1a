// The options that a plan is made with, and the choice of a kernel that it tells for a node.
#ifndef OPKIT_GRAPH_PLAN_TYPES_HPP_
#define OPKIT_GRAPH_PLAN_TYPES_HPP_

#include "opkit/engine/schedule/replay_mode.hpp"
#include "opkit/graph/memory/types.hpp"
#include "opkit/graph/partition/request.hpp"
#include "opkit/graph/passes.hpp"
#include "opkit/graph/selection.hpp"
#include "opkit/op/kernel.hpp"

namespace opkit::inline OPKIT_ABI {

struct PartitionReport;  // graph/partition/report.hpp

struct PlanOptions {
  // Threads that run the plan, the caller's included; 0: those of ThreadPool::Default(). Another
  // number than that makes a pool of the plan's own.
  int threads = 0;
  // Nodes are called in one fixed order, whatever the number of threads.
  bool deterministic = false;
  ReplayMode mode = ReplayMode::kAuto;
  // Applied in order before anything is selected; null: DefaultPasses().
  const PassList* passes = nullptr;
  // Asked in order, after the passes, for parts of the graph that they run (Partition of
  // graph/partition/partition.hpp). Only with them may the graph have operators that nobody
  // registered; Compile throws kNotFound where they leave some.
  std::vector<PartitionerRequest> partitioners = {};
  // Filled in with what they took, if given.
  PartitionReport* partition_report = nullptr;
  MemoryPlanOptions memory = {};
  // Backends that are tried for every node, in this order, behind those that the node names and
  // before those that are preferred for the program (SetGlobalEnginePref), which Compile reads
  // once: shapes that the plan meets later run on the same.
  std::vector<std::string> backends = {};
  // Every backend that a node names is required, and one that is only preferred for the program or
  // the plan must be there: Compile throws kNotFound where it would pass it over.
  bool strict_backends = false;
  // Kernels that nodes must have, whatever the order of the backends is. Compile throws where one
  // is not there or does not take its node.
  Selection selection = {};
  // What selection makes small where nothing is forced. The whole of a plan's memory is bounded by
  // memory.capacity_bytes.
  SelectionObjective objective = SelectionObjective::kTime;
  // Where nodes that name no device may run, in the order of preference: {cuda, cpu} takes CUDA
  // where that is there and has a kernel. Values are copied where neighbours differ. Empty: the
  // CPU.
  std::vector<Device> devices = {};
  // Inputs whose memory is the plan's from the start of a run on: where their last reader may write
  // in place, it writes an intermediate value or an output there. The tensor that was given for one
  // then holds anything after the run, or is what the run returns as an output. Compile throws
  // kNotFound for a name that is no input, and kInvalidArgument for an input that the graph
  // rewrites or returns.
  std::vector<std::string> donated_inputs = {};
  // Has Compile drop the elements of constants that kernels read only in another layout or on
  // another device, so that weights do not take memory twice: the plan keeps the converted tensor,
  // and of the original the dtype and the shape. The memory is given back once the caller's graphs
  // and tensors do not share it either. Constants of subgraphs stay. To read, save or compile what
  // Plan::graph() has of a dropped one is an Error (kUninitialized). Compile throws
  // kInvalidArgument where the dtype or the shape of an input is open, since another shape may need
  // the original.
  bool release_constants = false;
  // Has every memory plan proved by VerifyMemoryPlan; without NDEBUG all but large ones are.
  bool verify_memory = false;
  // Sets of input shapes that the plan, and each executor, keeps; the least recently used goes.
  int max_shapes = 8;
};

// The kernel and the configuration that were selected for a node.
struct NodeChoice {
  const Kernel* kernel = nullptr;
  KernelConfig config;
  int config_number = 0;           // among those that the kernel proposes
  Device device;                   // where it runs
  int computed_by = -1;            // the node before it whose kernel computes both; -1: its own
  IntrusivePtr<RefCounted> owner;  // keeps the kernel's library loaded
  // Better candidates that could not be chosen, "\n  backend NAME: why" for each.
  std::string passed_over;
};

}  // namespace opkit

#endif  // OPKIT_GRAPH_PLAN_TYPES_HPP_
