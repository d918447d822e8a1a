// opkit simulate: predicts the time of a model's training step on processes that do not exist here.
#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <set>

#include "file.hpp"
#include "model.hpp"
#include "opkit/cluster/pipeline.hpp"
#include "opkit/cluster/simulate.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "options.hpp"
#include "terminal.hpp"
#include "timing.hpp"

namespace cli {
namespace {

using namespace opkit;

struct SimulateCommand {
  ModelOptions model;
  std::vector<int> ranks, micro_batches{8};
  std::string topology;
  bool data_parallel = false, pipeline = false;
  double backward = 2;
  int64_t bucket_bytes = TrainingLayout().bucket_bytes;
  int repeat = 5;
};

// The costs of a model on the stages of pipelines.
class ModelCosts {
 public:
  ModelCosts(const Graph& graph, MeasuredTimes times, double backward, const LinkCost& link)
      : graph_(graph), times_(std::move(times)), backward_(backward), link_(link) {
    for (const auto& [output, ns] : times_) forward_ += 1e-9 * ns;
  }
  // Returns the seconds of a forward pass on one rank.
  double forward() const { return forward_; }
  int64_t parameter_bytes() {
    int64_t sum = 0;
    for (const LayerCost& layer : Stages(1)[0].layers) sum += layer.gradient_bytes;
    return sum;
  }

  // Returns at most so many stages: fewer if more do not make a step shorter.
  const std::vector<StageCost>& Stages(int most) {
    most = std::min(most, std::max(graph_.num_nodes(), 1));
    const auto [found, is_new] = stages_.try_emplace(most);
    if (is_new) found->second = Cut(most);
    return found->second;
  }

 private:
  // Returns the bytes of a value that depends on no input of the model, and has a gradient.
  int64_t ParameterBytes(const Graph& graph, const std::string& name) const {
    const int producer = graph.Producer(name);
    const bool is_parameter =
        producer >= 0 ? graph.node(producer).process() < 0 : !name.empty() && !graph.IsInput(name);
    if (!is_parameter) return 0;
    const TensorInfo& info = types_.Get(name);
    const bool has_gradient =
        FloatTypes::Visit(info.dtype, []<class T>() {}) && info.shape.is_known();
    return has_gradient ? BytesOf(info.shape.ToShape().numel(), info.dtype) : 0;
  }
  std::vector<StageCost> Cut(int most) const {
    constexpr double kFast = 1e9;  // a node without a time is part of another, or ran before
    const double bytes_per_ns = link_.seconds_per_byte > 0 ? 1e-9 / link_.seconds_per_byte : kFast;
    const PipelineCut cut = FailWith(ExitCode::kBadModel, "", [&] {
      return Pipeline(graph_, most,
                      {.times = times_,
                       .node_ns = 0,
                       .flops_per_ns = kFast,
                       .bytes_per_ns = kFast,
                       .message_ns = 1e9 * link_.latency,
                       .message_bytes_per_ns = bytes_per_ns});
    });
    std::vector<StageCost> stages(1);
    std::set<std::string> counted;
    for (const OperatorDef& def : cut.graph.nodes()) {
      if (def.process() < 0 || def.outputs().empty()) continue;
      const auto stage = static_cast<size_t>(def.process());
      if (stage >= stages.size()) stages.resize(stage + 1);
      stages[stage].output_bytes = cut.stages[stage].bytes_sent;
      LayerCost& layer = stages[stage].layers.emplace_back();
      if (const auto time = times_.find(def.outputs()[0]); time != times_.end())
        layer.forward = 1e-9 * time->second;
      layer.backward = backward_ * layer.forward;
      for (const std::string& input : def.inputs())
        if (counted.insert(input).second) layer.gradient_bytes += ParameterBytes(cut.graph, input);
    }
    return stages;
  }

  const Graph& graph_;
  const GraphView view_{graph_};
  const GraphTypes types_ = InferGraph(view_);
  const MeasuredTimes times_;
  const double backward_;
  const LinkCost link_;
  double forward_ = 0;
  std::map<int, std::vector<StageCost>> stages_;  // by the most stages
};

MeasuredTimes MeasureModel(const Graph& graph, const std::vector<NamedTensor>& inputs,
                           const SimulateCommand& command) {
  Executor executor(MakePlan(graph, inputs, command.model));
  for (const NamedTensor& input : inputs) executor.Bind(input.name, input.tensor);
  executor.Run();
  MeasuredTimes times;
  for (const NetBenchmark::Row& row : TimeNodes(executor, command.repeat).nodes) {
    const std::vector<std::string>& outputs = executor.plan().graph().node(row.node).outputs();
    if (!outputs.empty()) times[outputs[0]] = 1e6 * row.ms;
  }
  return times;
}

void Simulate(SimulateCommand& command) {
  const Topology topology =
      FailWith(ExitCode::kBadFile, "", [&] { return Topology::Load(command.topology); });
  const OnnxModel model = LoadModel(command.model);
  const auto inputs = MakeInputs(model.graph, command.model, true);
  const Graph graph = WithShapes(model.graph, ShapesOf(model.graph, inputs));
  ModelCosts costs(graph, MeasureModel(model.graph, inputs, command), command.backward,
                   topology.Between(0, 1));
  Table table("rrrrrrrrr");
  table.Add({"ranks", "replicas", "stages", "micro-batches", "ms", "ms of work", "ms of waits",
             "speed-up", "efficiency"});
  const bool all = !command.data_parallel && !command.pipeline;
  for (const int ranks : command.ranks)
    for (int stages = 1; stages <= ranks; ++stages) {
      if (ranks % stages != 0) continue;
      const bool is_asked =
          (command.data_parallel && stages == 1) || (command.pipeline && stages == ranks);
      if (!all && !is_asked) continue;
      const std::vector<StageCost>& cut = costs.Stages(stages);
      // Other layouts use all ranks.
      if (all && static_cast<int>(cut.size()) < stages) continue;
      const int replicas = ranks / stages;
      for (const int batches : command.micro_batches) {
        const SimulatedStep step = SimulateTraining(cut,
                                                    {.replicas = replicas,
                                                     .micro_batches = batches,
                                                     .bucket_bytes = command.bucket_bytes,
                                                     .is_inference = command.backward == 0},
                                                    topology);
        const double work = replicas * batches * (1 + command.backward) * costs.forward();
        const double faster = step.seconds > 0 ? work / step.seconds : 0;
        table.Add({StrCat(ranks), StrCat(replicas), StrCat(cut.size()), StrCat(batches),
                   Fixed(1e3 * step.seconds, 3), Fixed(1e3 * step.compute, 3),
                   Fixed(1e3 * step.exposed(), 3), Fixed(faster, 2), Fixed(faster / ranks, 3)});
      }
    }
  WriteFile("-", StrCat("forward pass on one rank: ", Fixed(1e3 * costs.forward(), 3),
                        " ms, parameters: ",
                        Fixed(static_cast<double>(costs.parameter_bytes()) / (1 << 20), 1),
                        " MiB\n\n", table.Format(true, stdout)));
}

}  // namespace

void AddSimulateCommand(CLI::App& program) {
  auto command = std::make_shared<SimulateCommand>();
  CLI::App* app =
      program.add_subcommand("simulate", "Predict a model's training step on many ranks");
  AddModelOptions(*app, &command->model);
  AddInputOptions(*app, &command->model);
  app->add_option("--ranks", command->ranks, "Predicts for N ranks; several numbers: for each")
      ->required()
      ->delimiter(',')
      ->check(WholeNumber(1, 4096))
      ->option_text("N,... REQUIRED");
  app->add_option("--topology", command->topology,
                  "Reads the costs of the connections between ranks (docs/cluster.md)")
      ->required()
      ->option_text("FILE.json REQUIRED");
  app->add_flag("--data-parallel", command->data_parallel,
                "Predicts for a copy of the model on each rank");
  app->add_flag("--pipeline", command->pipeline,
                "Predicts for one stage of the model on each rank");
  app->add_option("--micro-batches", command->micro_batches,
                  "Sets the number of micro-batches of each replica in a step; a micro-batch is "
                  "what one run of the model takes; several numbers: predicts for each")
      ->delimiter(',')
      ->check(WholeNumber(1, 10'000))
      ->option_text("N,...=8");
  app->add_option("--backward", command->backward,
                  "Sets the time of a backward pass, in forward passes; 0: inference, without "
                  "gradients")
      ->check(NotNegative())
      ->option_text("X=2");
  app->add_option("--bucket-bytes", command->bucket_bytes,
                  "Sets how many bytes of gradients one AllReduce combines at least")
      ->check(WholeNumber(1))
      ->option_text("N=26214400");
  app->add_option("--repeat", command->repeat, "Measures the nodes on this machine so many times")
      ->check(WholeNumber(1, 1'000'000))
      ->option_text("N=5");
  app->footer(
      "Measures the nodes of the model here, on one rank. Without --data-parallel and --pipeline, "
      "predicts for each layout of replicas and stages that uses all ranks. Replicas add up the "
      "gradients of the values of floating-point numbers that depend on no input. The speed-up is "
      "over one "
      "rank with the same work.\n\n"
      "Examples:\n"
      "  opkit simulate model.onnx --ranks 64 --topology net.json\n"
      "  opkit simulate model.onnx --ranks 1,2,4,8 --topology net.json --data-parallel\n"
      "  opkit simulate model.onnx --ranks 4 --topology net.json --pipeline --backward 0");
  app->callback([command] { Simulate(*command); });
}

}  // namespace cli
