// IsFaster: measures whether a partitioner's operator is faster than the nodes that it would
// replace. Only files with definitions include this header.
#ifndef OPKIT_GRAPH_PARTITION_MEASURE_HPP_
#define OPKIT_GRAPH_PARTITION_MEASURE_HPP_

#include <algorithm>
#include <cstring>

#include "opkit/base/platform.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/graph/partition/report.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the shortest time of several runs of a plan of the graph, in ns: a disturbance can only
// make a run longer. Inputs are zeros, which every operator accepts as indices and lengths.
inline double MeasureNs(const Graph& graph) {
  constexpr int kLeastRuns = 3, kMostRuns = 100;
  constexpr int64_t kEnoughNs = 20'000'000;
  std::vector<NamedTensor> inputs;
  for (const Graph::Input& input : graph.inputs()) {
    Tensor tensor(input.info.shape.ToShape(), input.info.dtype);
    if (tensor.nbytes() > 0)
      std::memset(tensor.raw_mutable_data(), 0, static_cast<size_t>(tensor.nbytes()));
    inputs.push_back({input.name, std::move(tensor)});
  }
  const PassList none;
  Executor executor(Compile(graph, {.passes = &none}));
  executor.Run(inputs);
  int64_t best = INT64_MAX;
  const int64_t begin = MonotonicNs();
  for (int run = 0; run < kLeastRuns || (run < kMostRuns && MonotonicNs() - begin < kEnoughNs);
       ++run) {
    const int64_t start = MonotonicNs();
    executor.Run(inputs);
    best = (std::min)(best, MonotonicNs() - start);
  }
  return static_cast<double>(best);
}

// True if a run of `def` takes less time than a run of the nodes of `body`. The time of `def`
// includes the copies that it makes of its inputs and outputs. Stores both times in `entry`.
// Returns true without a measurement if an operator of the body is not registered. Throws
// kFailedPrecondition for an input with open dtype or shape, kUnsupported for a node on a device
// whose memory the host cannot access, and the errors of a run.
inline bool IsFaster(const Graph& body, const OperatorDef& def, PartitionReport::Subgraph& entry) {
  for (const OperatorDef& node : body.nodes())
    if (!OpRegistry::Global().FindSchema(node.type())) return true;
  if (!IsHostAccessible(def.device().type))
    Throw(ErrorCode::kUnsupported, "accept_if_faster measures on the host, and ", ToString(def),
          " runs on ", def.device());
  Graph whole;
  for (const Graph::Input& input : body.inputs()) {
    if (input.info.dtype == DType::kUndefined || !input.info.shape.is_known())
      Throw(ErrorCode::kFailedPrecondition,
            "accept_if_faster needs the dtype and shape of every value, and '", input.name, "' is ",
            ToString(input.info), "; give the inputs of the graph shapes");
    whole.AddInput(input.name, input.info.dtype, input.info.shape);
  }
  OperatorDef alone(def);
  alone.mutable_control_inputs().clear();
  whole.AddNode(std::move(alone));
  for (const std::string& output : body.outputs()) whole.AddOutput(output);
  entry.flat_ns = MeasureNs(body);
  entry.own_ns = MeasureNs(whole);
  return entry.own_ns < entry.flat_ns;
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_GRAPH_PARTITION_MEASURE_HPP_
