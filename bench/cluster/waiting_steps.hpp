// Training steps whose layers wait instead of computing, so that two cores are enough for four
// processes, and what the simulator predicts for them.
#ifndef OPKIT_BENCH_CLUSTER_WAITING_STEPS_HPP_
#define OPKIT_BENCH_CLUSTER_WAITING_STEPS_HPP_

#include <cstring>
#include <thread>

#include "cluster_runner.hpp"
#include "opkit/base/algorithm.hpp"
#include "opkit/base/function_ref.hpp"
#include "opkit/cluster/data_parallel.hpp"
#include "opkit/cluster/micro_batches.hpp"
#include "opkit/cluster/pipeline.hpp"
#include "opkit/cluster/simulate.hpp"
#include "opkit/functions.hpp"
#include "opkit/op/check/check_data.hpp"
#include "opkit/op/gradient/gradient.hpp"

namespace cluster_bench {

using namespace opkit;

// Returns the times of the nodes of a graph on one process.
using Measurer = FunctionRef<MeasuredTimes(const Graph&)>;

inline void Wait(double ms) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
}

// y = x, after a wait.
template <class Context>
void WaitingLayer(Context&, In<"x", float> x, In<"w", float>, Out<"y", float> y,
                  Attr<"ms", float> ms) {
  Wait(ms);
  std::memcpy(y.data(), x.data(), static_cast<size_t>(x.size()) * sizeof(float));
}
OPKIT_OP(WaitingLayer).SameShape<"x", "y">().Kernel<CPUContext>();

// Waits twice as long.
template <class Context>
void WaitingLayerGradient(Context&, In<"w", float>, In<"dy", float> dy, Out<"dx", float> dx,
                          Out<"dw", float> dw, Attr<"ms", float> ms) {
  Wait(2 * ms);
  std::memcpy(dx.data(), dy.data(), static_cast<size_t>(dy.size()) * sizeof(float));
  for (int64_t i = 0; i < dw.size(); ++i) dw[i] = 1;
}
OPKIT_OP(WaitingLayerGradient).SameShape<"dy", "dx">().SameShape<"w", "dw">().Kernel<CPUContext>();

class WaitingLayerGradientMaker final : public GradientMakerBase {
  using GradientMakerBase::GradientMakerBase;
  std::vector<OperatorDef> GetGradientDefs() override {
    return SingleGradientDef("WaitingLayerGradient", "", {I(1), GO(0)}, {GI(0), GI(1)});
  }
};
REGISTER_GRADIENT(WaitingLayer, WaitingLayerGradientMaker);

constexpr int kLayers = 8;
constexpr int64_t kRows = 64, kWidth = 256;  // of x in a micro-batch: 64 KiB
constexpr int64_t kWeights = 64 << 10;       // of a layer: 256 KiB
constexpr float kMs[kLayers] = {8, 4, 6, 4, 4, 6, 4, 8};

inline std::string Weight(int layer) { return StrCat("w", layer); }
inline std::vector<std::string> Weights() {
  std::vector<std::string> names;
  for (int layer = 0; layer < kLayers; ++layer) names.push_back(Weight(layer));
  return names;
}
inline Graph Model() {
  Graph graph;
  graph.AddInput("x0", DType::kFloat32, {kRows, kWidth});
  for (int layer = 0; layer < kLayers; ++layer) {
    graph.AddInput(Weight(layer), DType::kFloat32, {kWeights});
    graph.AddNode(OperatorDef("WaitingLayer", {StrCat("x", layer), Weight(layer)},
                              {StrCat("x", layer + 1)}, {{"ms", kMs[layer]}}));
  }
  graph.AddNode(OperatorDef("ReduceMean", {StrCat("x", kLayers)}, {"loss"}, {{"keepdims", 0}}));
  graph.AddOutput("loss");
  return graph;
}
// Adds the gradients of the weights as outputs, and returns their names.
inline std::vector<std::string> AddOutputs(Graph& graph, const GradientMap& gradients) {
  std::vector<std::string> names;
  for (const std::string& weight : Weights()) names.push_back(gradients.at(weight).dense);
  for (const std::string& name : names) graph.AddOutput(name);
  return names;
}
inline std::vector<NamedTensor> InputsOf(const Graph& graph) {
  std::vector<NamedTensor> inputs;
  for (const Graph::Input& input : graph.inputs())
    inputs.push_back({input.name, RandomTensor(input.info.shape.ToShape(), DType::kFloat32, 1)});
  return inputs;
}

// A training step on several processes.
struct Step {
  Graph whole;  // on one process
  Graph graph;  // on all
  std::vector<StageCost> stages;
  TrainingLayout layout;
  int processes() const { return layout.replicas * static_cast<int>(stages.size()); }
};

// The layers of the stages whose first layers are `begins`, as SimulateTraining knows them.
inline std::vector<StageCost> StagesOf(std::vector<int> begins, const MeasuredTimes& times,
                                       const Graph& model) {
  std::vector<StageCost> stages;
  begins.push_back(kLayers);
  for (size_t stage = 0; stage + 1 < begins.size(); ++stage) {
    StageCost& cost = stages.emplace_back();
    cost.output_bytes = 4 * kRows * kWidth;
    for (int layer = begins[stage]; layer < begins[stage + 1]; ++layer) {
      LayerCost& one = cost.layers.emplace_back(LayerCost{.gradient_bytes = 4 * kWeights});
      for (const OperatorDef& def : model.nodes())
        if (detail::Contains(def.inputs(), Weight(layer)))
          (def.is_gradient_op() ? one.backward : one.forward) += 1e-9 * TimeOfNode(times, def);
    }
  }
  return stages;
}

inline Step DataParallelStep(int replicas, Measurer measure) {
  constexpr int64_t kBucket = 2 * 4 * kWeights;
  Step step;
  step.layout = {
      .replicas = replicas, .bucket_bytes = kBucket, .algorithm = AllReduceAlgorithm::kRing};
  step.whole = step.graph = Model();
  AddOutputs(step.whole, AddGradients(step.whole, "loss", Weights()));
  AddOutputs(step.graph, DataParallel(step.graph, "loss", Weights(), {.bucket_bytes = kBucket}));
  step.stages = StagesOf({0}, measure(step.whole), step.whole);
  return step;
}

// Returns the begin of each stage among the layers.
inline std::vector<int> Begins(const Graph& graph, int processes) {
  std::vector<int> begins(static_cast<size_t>(processes), kLayers);
  for (const OperatorDef& def : graph.nodes())
    for (int layer = 0; layer < kLayers; ++layer)
      if (def.type() == "WaitingLayer" && def.inputs()[1] == Weight(layer)) {
        int& begin = begins[static_cast<size_t>(def.process())];
        begin = std::min(begin, layer);
      }
  return begins;
}

// A layer, with its gradient, runs on the process of its stage. The stages are cut by the times of
// the forward pass.
inline Step PipelineStep(int processes, int batches, Measurer measure) {
  Step step;
  step.layout = {.micro_batches = batches};
  Graph model = Model(), training = model;
  const std::vector<std::string> gradients =
      AddOutputs(training, AddGradients(training, "loss", Weights()));
  const MeasuredTimes times = measure(training);
  const std::vector<int> begins =
      Begins(Pipeline(model, processes, {.times = times}).graph, processes);
  Graph cut = training;
  for (int node = 0; node < cut.num_nodes(); ++node) {
    OperatorDef def = cut.node(node);
    int stage = processes - 1;  // the loss
    for (int layer = 0; layer < kLayers; ++layer)
      if (detail::Contains(def.inputs(), Weight(layer)))
        while (stage > 0 && begins[static_cast<size_t>(stage)] > layer) --stage;
    cut.ReplaceNode(node, def.Process(stage));
  }
  MicroBatchOptions options{.batched = {"x0"}, .averaged = gradients};
  options.averaged.push_back("loss");
  step.whole = MicroBatches(training, batches, options);
  step.graph = MicroBatches(cut, batches, options);
  step.stages = StagesOf(begins, times, training);
  return step;
}

// Two replicas of a pipeline. A process of the first adds up the gradients of its stage, and sends
// the sums to the process of the second: an AllReduce on a tree.
inline Step BothStep(int stages, int batches, Measurer measure) {
  Step step = PipelineStep(stages, batches, measure);
  const Graph replica = std::exchange(step.graph, Graph());
  const auto name = [](int r, const std::string& value) {
    return value.empty() ? value : StrCat(value, " of replica ", r);
  };
  for (const int r : {0, 1}) {
    for (Graph::Input input : replica.inputs()) {
      input.name = name(r, input.name);
      step.graph.AddInput(std::move(input));
    }
    for (const Graph::Constant& constant : replica.constants())
      step.graph.AddConstant(name(r, constant.name), constant.value);
  }
  for (const OperatorDef& def : replica.nodes())
    for (const int r : {0, 1}) {
      OperatorDef copy = def;
      for (std::string& input : copy.mutable_inputs()) input = name(r, input);
      for (std::string& output : copy.mutable_outputs()) output = name(r, output);
      if (def.process() >= 0) copy.Process(r * stages + def.process());
      step.graph.AddNode(std::move(copy));
    }
  for (const std::string& output : replica.outputs()) {
    const OperatorDef& maker = replica.node(replica.Producer(output));
    if (output == "loss") continue;
    const std::string sum = StrCat("sum of ", output), all = StrCat("all of ", output);
    step.graph.AddNode(
        OperatorDef("Add", {name(0, output), name(1, output)}, {sum}).Process(maker.process()));
    step.graph.AddNode(OperatorDef("Identity", {sum}, {all}).Process(stages + maker.process()));
    step.graph.AddOutput(sum).AddOutput(all);
  }
  step.layout.replicas = 2;
  step.layout.bucket_bytes = 1;
  step.layout.algorithm = AllReduceAlgorithm::kRing;
  return step;
}

// The seconds of a step that SimulateStep predicts, and those of SimulateTraining, which knows only
// the costs of the layers.
struct Prediction {
  double by_graph = 0, by_layers = 0;
};
inline Prediction Predict(const Step& step, const LinkCost& link, Measurer measure) {
  const MeasuredTimes times = measure(step.whole);
  const auto seconds_of = [&](const OperatorDef& def) {
    std::string output = def.outputs().at(0);
    output = output.substr(0, output.find(" of replica "));
    // Sums of gradients over replicas are short, and are in no run of one process.
    const auto found = times.find(output);
    return found == times.end() ? 0 : 1e-9 * found->second;
  };
  const Topology topology{.within_host = link, .between_hosts = link, .links = {}};
  return {SimulateStep(ProcessParts(step.graph, step.processes()), seconds_of, topology,
                       AllReduceAlgorithm::kRing)
              .seconds,
          SimulateTraining(step.stages, step.layout, topology).seconds};
}

}  // namespace cluster_bench

#endif  // OPKIT_BENCH_CLUSTER_WAITING_STEPS_HPP_
