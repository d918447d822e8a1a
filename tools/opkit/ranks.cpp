// The stages of a model, and their processes: threads of this program, or those of a job of mpirun.
#include "ranks.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#ifdef OPKIT_CLI_MPI
#include "opkit/backends/mpi/cluster.hpp"
#endif
#include "opkit/cluster/local.hpp"
#include "opkit/cluster/pipeline.hpp"
#include "opkit/cluster/process_parts.hpp"
#include "opkit/profile/profiler.hpp"
#include "terminal.hpp"

namespace cli {

using namespace opkit;

namespace {

PipelineCut CutModel(const Graph& graph, const std::vector<Graph::Input>& shapes, int ranks) {
  try {
    return Pipeline(WithShapes(graph, shapes), ranks);
  } catch (const Error& error) {
    ThrowRefused(error, graph, shapes);
  }
}
// Calls `run` for each rank of this program: for the one of this process in a job of mpirun, else
// for all, which are then threads. The only place that makes communicators.
void OnRanks(int ranks, FunctionRef<void(const CommunicatorPtr&)> run) {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const char* const size = std::getenv(variable);
    if (!size) continue;
    if (StrCat(ranks) != size)
      throw Failure(ExitCode::kUsage,
                    StrCat("--pipeline is ", ranks, ", but mpirun started ", size, " processes"));
#ifdef OPKIT_CLI_MPI
    const MpiCluster cluster;
    return run(cluster.communicator());
#else
    throw Failure(ExitCode::kUsage, "this program was built without MPI",
                  "build it with -DOPKIT_CLI_MPI=ON, or run it without mpirun");
#endif
  }
  LocalCluster(ranks).Run(run);
}
void PrintWarnings(const PipelineCut& cut) {
  for (const std::string& warning : cut.warnings)
    std::fprintf(stderr, "opkit: warning: %s\n", warning.c_str());
}
std::string KiB(int64_t bytes) { return Fixed(static_cast<double>(bytes) / 1024, 1); }
std::string Us(double ns) { return Fixed(ns * 1e-3, 1); }

}  // namespace

std::string DescribeRanks(const Graph& graph, const std::vector<Graph::Input>& shapes, int ranks) {
  const PipelineCut cut = CutModel(graph, shapes, ranks);
  PrintWarnings(cut);
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
  return StrCat("\n", Bold("ranks, with times by the cost functions of operators", stdout), "\n",
                stages.Format(true, stdout), "\n", Bold("values that cross in a run", stdout), "\n",
                crossing.Format(true, stdout), "together ", KiB(bytes), " KiB\n\n",
                Bold("nodes of the ranks", stdout), StrCat("\n", nodes.Format(true, stdout)));
}

void RunOnRanks(const Graph& graph, const std::vector<NamedTensor>& inputs,
                const ModelOptions& options, int ranks, int repeat, bool profile,
                FunctionRef<void(const RanksRun&)> write) {
  const std::vector<Graph::Input> shapes = ShapesOf(graph, inputs);
  const PipelineCut cut = CutModel(graph, shapes, ranks);
  std::mutex mutex;
  RanksRun all;
  std::map<std::string, Tensor> found;
  bool is_written = false;
  const auto finish = [&] {
    Profiler::Stop();
    for (const std::string& output : graph.outputs())
      if (const auto made = found.find(output); made != found.end())
        all.outputs.Add(output, made->second);
    write(all);
    is_written = true;
  };
  OnRanks(ranks, [&](const CommunicatorPtr& communicator) {
    if (communicator->process() == 0) PrintWarnings(cut);
    PlanOptions plan = PlanOptionsOf(options);
    plan.cluster.communicator = communicator;
    Executor executor(Compile(cut.graph, plan));
    for (const NamedTensor& input : inputs)
      if (executor.plan().graph().IsInput(input.name)) executor.Bind(input.name, input.tensor);
    if (profile) {
      communicator->Exchange("compiled");
      if (communicator->backend() != "local" || communicator->process() == 0)
        Profiler::Start({.shapes = true});
      AlignClocks(*communicator);
    }
    Times times;
    for (int i = 0; i < repeat; ++i) {
      const Stopwatch watch;
      executor.Run();
      times.Add(watch.ms());
    }
    std::vector<Profile> profiles;
    ClusterRun run;
    if (profile) {
      const Profile own = Profiler::Read();
      profiles = GatherProfiles(*communicator, own);
      try {
        run = ProfileOfRun(*communicator, executor.plan(), own);
      } catch (const Error&) {  // on all ranks, if records of one have found no room
      }
    }
    std::unique_lock lock(mutex);
    if (communicator->process() == 0) {
      all.profiles = std::move(profiles);
      all.run = std::move(run);
    }
    for (const auto& [name, tensor] : executor.outputs()) {
      const int producer = cut.graph.Producer(name);
      const int maker = producer < 0 ? -1 : cut.graph.node(producer).process();
      if (std::max(maker, 0) == communicator->process()) found.emplace(name, tensor);
    }
    if (communicator->process() == ranks - 1) all.times = times;
    lock.unlock();
    for (int rank = ranks - 1; rank >= 0 && communicator->backend() != "local"; --rank) {
      if (rank == communicator->process()) {
        finish();
        std::fflush(stdout);
      }
      if (rank > 0) communicator->Exchange("has written");
    }
  });
  if (!is_written) finish();
}

}  // namespace cli
