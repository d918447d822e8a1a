// Predictions of the simulator beside runs on the processes of a job of mpirun, which namespaces.py
// starts. Process 0 measures the network to process 1 and the nodes, and prints the times as JSON.
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>

#include "opkit/backends/mpi/cluster.hpp"
#include "opkit/interop/onnx.hpp"
#include "statistics.hpp"
#include "waiting_steps.hpp"

namespace {

using namespace cluster_bench;

constexpr int kRounds = 9;

// Lets this process's threads run before other work of the machine. MPI_Init and MPI_Finalize poll,
// so that they must not have this precedence.
class Precedence {
 public:
  Precedence() { Set(SCHED_FIFO, 10); }
  ~Precedence() { Set(SCHED_OTHER, 0); }

 private:
  static void Set(int policy, int priority) {
    const sched_param parameters = {priority};
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
      if (sched_setscheduler(std::stoi(entry.path().filename().string()), policy, &parameters) != 0)
        std::perror("sched_setscheduler");
  }
};

using ExecutorPtr = std::shared_ptr<Executor>;

ExecutorPtr MakeExecutor(const Graph& graph, const CommunicatorPtr& communicator) {
  PlanOptions options;
  options.threads = 1;
  options.cluster.communicator = communicator;
  const auto executor = std::make_shared<Executor>(Compile(graph, options));
  for (const NamedTensor& input : InputsOf(graph))
    if (executor->plan().graph().IsInput(input.name)) executor->Bind(input.name, input.tensor);
  return executor;
}

// Returns the seconds from the begin of a run on all processes to its end on the last one.
double SecondsOf(Executor& executor, Communicator& communicator) {
  communicator.Exchange("begin");
  const double begin = Seconds();
  executor.Run();
  double most = 0;
  for (const std::string& seconds : communicator.Exchange(std::to_string(Seconds() - begin)))
    most = std::max(most, std::stod(seconds));
  return most;
}

// Returns the median time of a run of the graph, in seconds.
double MedianOf(const Graph& graph, const CommunicatorPtr& communicator) {
  const ExecutorPtr executor = MakeExecutor(graph, communicator);
  std::vector<double> seconds;
  for (int run = -1; run < kRounds; ++run) {
    const double run_seconds = SecondsOf(*executor, *communicator);
    if (run >= 0) seconds.push_back(run_seconds);
  }
  return Median(seconds);
}

// Measures the connection of processes 0 and 1: the latency from small messages that follow each
// other, the rate from messages in both directions at the same time.
LinkCost MeasureLink(const CommunicatorPtr& communicator) {
  constexpr int kMessages = 20;
  constexpr int64_t kBytes = 1 << 20;
  Graph chain;
  chain.AddInput("0", DType::kFloat32, {1});
  for (int i = 0; i <= kMessages; ++i)
    chain.AddNode(OperatorDef("Identity", {StrCat(i)}, {StrCat(i + 1)}).Process(i % 2));
  chain.AddOutput(StrCat(kMessages + 1));
  Graph exchange;
  for (const int process : {0, 1}) {
    const std::string input = StrCat("x", process), sent = StrCat("sent", process);
    exchange.AddInput(input, DType::kFloat32, {kBytes / 4});
    exchange.AddNode(OperatorDef("Identity", {input}, {sent}).Process(process));
    exchange.AddNode(OperatorDef("Identity", {sent}, {StrCat("y", process)}).Process(1 - process));
    exchange.AddOutput(StrCat("y", process));
  }
  const double latency = MedianOf(chain, communicator) / kMessages;
  return {.latency = latency,
          .seconds_per_byte = (MedianOf(exchange, communicator) - latency) / kBytes};
}

// Returns the times that process 0 measures.
MeasuredTimes MeasureOnFirst(const Graph& graph, Communicator& communicator) {
  std::string text;
  if (communicator.process() == 0)
    for (const auto& [output, ns] : Measure(graph, InputsOf(graph)))
      text += StrCat(output, "\n", ns, "\n");
  std::istringstream lines(communicator.Exchange(text)[0]);
  MeasuredTimes times;
  for (std::string output, ns; std::getline(lines, output) && std::getline(lines, ns);)
    times[output] = std::stod(ns);
  return times;
}

// A step that is predicted and measured.
struct Case {
  std::string name;
  Prediction predicted;
  ExecutorPtr executor;
  std::vector<double> seconds = {};
};

// A run of a model on a pipeline of two processes.
Case Resnet50(const LinkCost& link, const CommunicatorPtr& communicator) {
  const char* const folder = std::getenv("OPKIT_DATA_DIR");
  if (!folder) throw Error(ErrorCode::kFailedPrecondition, "OPKIT_DATA_DIR is not set");
  const Graph model =
      LoadOnnx(StrCat(folder, "/onnx-1.22.0/onnx/backend/test/data/light/light_resnet50.onnx"));
  const MeasuredTimes times = MeasureOnFirst(model, *communicator);
  const auto seconds_of = [&](const OperatorDef& def) {
    const auto found = times.find(def.outputs().at(0));
    return found == times.end() ? 0 : 1e-9 * found->second;  // part of another node, or folded
  };
  const PipelineCut cut =
      Pipeline(model, 2, {.times = times, .node_ns = 0, .flops_per_ns = 1e9, .bytes_per_ns = 1e9});
  std::vector<StageCost> stages;
  for (const PipelineStage& stage : cut.stages)
    stages.push_back({{{.forward = 1e-9 * stage.ns}}, stage.bytes_sent});
  const Topology topology{.within_host = link, .between_hosts = link, .links = {}};
  return {"resnet50, 2 stages, 1 image",
          {SimulateStep(ProcessParts(cut.graph, 2), seconds_of, topology).seconds,
           SimulateTraining(stages, {.is_inference = true}, topology).seconds},
          MakeExecutor(cut.graph, communicator)};
}

// Returns the cases of as many processes.
std::vector<Case> MakeCases(const LinkCost& link, const CommunicatorPtr& communicator) {
  const auto measure = [&](const Graph& graph) { return MeasureOnFirst(graph, *communicator); };
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, const Step& step) {
    cases.push_back({name, Predict(step, link, measure), MakeExecutor(step.graph, communicator)});
  };
  if (communicator->processes() == 2) {
    add("data parallel, 2 replicas", DataParallelStep(2, measure));
    add("2 stages, 4 micro-batches", PipelineStep(2, 4, measure));
    cases.push_back(Resnet50(link, communicator));
  } else {
    add("data parallel, 4 replicas", DataParallelStep(4, measure));
    add("4 stages, 8 micro-batches", PipelineStep(4, 8, measure));
    add("2 replicas of 2 stages, 4 micro-batches", BothStep(2, 4, measure));
  }
  return cases;
}

void Print(const LinkCost& link, const std::vector<Case>& cases) {
  std::printf("{\"latency_us\": %.6g, \"gigabytes_per_s\": %.6g, \"rows\": [", 1e6 * link.latency,
              1e-9 / link.seconds_per_byte);
  const char* separator = "\n";
  for (const Case& one : cases) {
    std::printf(
        "%s{\"step\": \"%s\", \"measured_ms\": %.6g, \"variation\": %.3g, "
        "\"by_graph_ms\": %.6g, \"by_layers_ms\": %.6g}",
        separator, one.name.c_str(), 1e3 * Median(one.seconds), Variation(one.seconds),
        1e3 * one.predicted.by_graph, 1e3 * one.predicted.by_layers);
    separator = ",\n";
  }
  std::printf("\n]}\n");
}

}  // namespace

int main() {
  MpiCluster cluster;
  const CommunicatorPtr& communicator = cluster.communicator();
  const Precedence precedence;
  const LinkCost link = MeasureLink(communicator);
  std::vector<Case> cases = MakeCases(link, communicator);
  for (int round = -1; round < kRounds; ++round)  // the first one warms up
    for (Case& one : cases) {
      const double seconds = SecondsOf(*one.executor, *communicator);
      if (round >= 0) one.seconds.push_back(seconds);
    }
  if (communicator->process() == 0) Print(link, cases);
}
