// The stages of a model, and their processes, which are threads of this program.
#include "ranks.hpp"

#include <algorithm>
#include <map>
#include <mutex>

#include "opkit/cluster/local.hpp"
#include "opkit/cluster/pipeline.hpp"
#include "opkit/cluster/process_parts.hpp"
#include "terminal.hpp"

namespace cli {

using namespace opkit;

namespace {

PipelineCut CutModel(const Graph& graph, const std::vector<Graph::Input>& shapes, int ranks) {
  return FailWith(ExitCode::kBadModel, "",
                  [&] { return Pipeline(graph, ranks, {.inputs = shapes}); });
}
std::string KiB(int64_t bytes) { return Fixed(static_cast<double>(bytes) / 1024, 1); }
std::string Us(double ns) { return Fixed(ns * 1e-3, 1); }

}  // namespace

std::string DescribeRanks(const Graph& graph, const std::vector<Graph::Input>& shapes, int ranks) {
  const Graph shaped = WithShapes(graph, shapes);
  const PipelineCut cut = CutModel(shaped, {}, ranks);
  const ProcessParts parts =
      FailWith(ExitCode::kBadModel, "", [&] { return ProcessParts(cut.graph, ranks); });
  Table stages("rrrrrr");
  stages.Add({"rank", "nodes", "us", "us of messages", "KiB received", "KiB sent"});
  for (size_t rank = 0; rank < cut.stages.size(); ++rank) {
    const PipelineStage& stage = cut.stages[rank];
    stages.Add({StrCat(rank), StrCat(stage.nodes), Us(stage.ns), Us(stage.messages_ns),
                KiB(stage.bytes_received), KiB(stage.bytes_sent)});
  }
  Table crossing("rrrll");
  crossing.Add({"from", "to", "KiB", "type", "value"});
  int64_t bytes = 0;
  for (const CrossingValue& value : parts.crossing()) {
    const bool is_known = value.info.shape.is_known();
    const auto size = static_cast<int64_t>(OpSchema::Bytes(value.info));
    bytes += size;
    crossing.Add({StrCat(value.from), StrCat(value.to), is_known ? KiB(size) : "-",
                  Printable(ToString(value.info)), Printable(value.value)});
  }
  Table nodes("rll");
  nodes.Add({"rank", "operator", "values"});
  for (const OperatorDef& def : cut.graph.nodes()) {
    const std::string text = ToString(def);
    nodes.Add({def.process() < 0 ? "all" : StrCat(def.process()), def.type(),
               Printable(text.substr(std::min(text.size(), def.type().size() + 1)))});
  }
  return StrCat("\n", Bold("ranks", stdout), "\n", stages.Format(true, stdout), "\n",
                Bold("values that cross in a run", stdout), "\n", crossing.Format(true, stdout),
                "together ", KiB(bytes), " KiB\n\n", Bold("nodes of the ranks", stdout),
                StrCat("\n", nodes.Format(true, stdout)));
}

RanksRun RunOnRanks(const Graph& graph, const std::vector<NamedTensor>& inputs,
                    const ModelOptions& options, int ranks, int repeat) {
  const std::vector<Graph::Input> shapes = ShapesOf(graph, inputs);
  const PipelineCut cut = CutModel(WithShapes(graph, shapes), {}, ranks);
  std::mutex mutex;
  RanksRun all;
  std::map<std::string, Tensor> found;
  // Runs the stage of one process.
  const auto run = [&](const CommunicatorPtr& communicator) {
    PlanOptions plan = PlanOptionsOf(options);
    plan.cluster.communicator = communicator;
    Executor executor(Compile(cut.graph, plan));
    for (const NamedTensor& input : inputs)
      if (executor.plan().graph().IsInput(input.name)) executor.Bind(input.name, input.tensor);
    Times times;
    for (int i = 0; i < repeat; ++i) {
      const Stopwatch watch;
      executor.Run();
      times.Add(watch.ms());
    }
    const std::lock_guard lock(mutex);
    for (const auto& [name, tensor] : executor.outputs()) found.emplace(name, tensor);
    if (communicator->process() == ranks - 1) all.times = times;
  };
  // The only place where the processes are made: threads of this program.
  LocalCluster(ranks).Run(run);
  for (const std::string& output : graph.outputs()) all.outputs.Add(output, found.at(output));
  return all;
}

}  // namespace cli
