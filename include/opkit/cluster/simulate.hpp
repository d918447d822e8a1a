// SimulateStep, SimulateTraining: predict how long a step takes on processes that do not exist
// here, from the times of one process and a topology.
#ifndef OPKIT_CLUSTER_SIMULATE_HPP_
#define OPKIT_CLUSTER_SIMULATE_HPP_

#include <vector>

#include "opkit/base/function_ref.hpp"
#include "opkit/cluster/process_parts.hpp"
#include "opkit/cluster/topology.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The predicted times of a step, in seconds.
struct SimulatedStep {
  double seconds = 0;      // until the last process ends
  double compute = 0;      // the work of the process that has the most
  double communicate = 0;  // how long messages and collectives keep the busiest process's network
  // The time of the step in which the process with the most work does not compute.
  double exposed() const { return seconds - compute; }
};

// Simulates a run of a graph's parts. A process runs one node at a time, as an executor with one
// thread does: of the nodes whose inputs are there, that whose inputs came last. Beside that it
// sends one message at a time and receives one at a time; a collective keeps both busy. Collectives
// of a group keep their order. Processes with equal parts that exchange no messages are simulated
// once: 4,096 data-parallel processes take as long as one. `seconds_of` gives the time of a node
// that does not communicate.
//
//   const MeasuredTimes times = TimesOfNodes(plan, ProfileOfRun(plan, Profiler::Read()));
//   SimulateStep(
//       ProcessParts(graph, 64),
//       [&](const OperatorDef& def) { return 1e-9 * TimeOfNode(times, def); },
//       Topology::Load("net.json"));
//
// Throws kUnsupported for a communication whose bytes are not known, and what `seconds_of` throws.
SimulatedStep SimulateStep(const ProcessParts& parts,
                           FunctionRef<double(const OperatorDef&)> seconds_of,
                           const Topology& topology,
                           AllReduceAlgorithm algorithm = AllReduceAlgorithm::kFastest);

// A part of a model that one process computes without a pause, for one micro-batch.
struct LayerCost {
  double forward = 0, backward = 0;  // seconds
  int64_t gradient_bytes = 0;        // of its parameters, reduced over the replicas
};

// The layers of one process of a pipeline.
struct StageCost {
  std::vector<LayerCost> layers;
  int64_t output_bytes = 0;  // sent to the next stage, and back as a gradient
};

// How a model is trained: `replicas` copies of a pipeline. Process r * stages + s has stage s of
// replica r.
struct TrainingLayout {
  int replicas = 1;
  int micro_batches = 1;
  // An AllReduce begins when this many bytes of gradients are there, or the stage's last ones.
  int64_t bucket_bytes = 4 << 20;
  bool overlaps = true;       // false: AllReduces begin after the whole backward pass
  bool is_inference = false;  // true: without backward passes, gradients and their messages
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::kFastest;
};

// Simulates a training step: each replica computes the forward passes of all micro-batches, then
// the backward passes (GPipe, Huang et al. 2019), and the replicas sum their gradients. All
// replicas take the same time, so one is simulated. Throws kInvalidArgument for numbers below 1 and
// for a pipeline without stages.
SimulatedStep SimulateTraining(const std::vector<StageCost>& stages, const TrainingLayout& layout,
                               const Topology& topology);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/cluster/impl/simulate.ipp"
#endif

#endif  // OPKIT_CLUSTER_SIMULATE_HPP_
