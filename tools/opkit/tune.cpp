// opkit tune: measures which kernels run a model fastest, and keeps the choice in the tuning cache.
#include <CLI/CLI.hpp>
#include <map>
#include <memory>

#include "file.hpp"
#include "model.hpp"
#include "opkit/graph/tune/plan_tuning.hpp"
#include "options.hpp"
#include "terminal.hpp"

namespace cli {
namespace {

using namespace opkit;

struct TuneCommand {
  ModelOptions model;
  std::string output, explain, exported;
  std::vector<std::string> merged;
  double seconds = 20;
  TuneObjective objective = TuneObjective::kTime;
  int64_t most_bytes = 0;
  int executors = 1;
  bool pareto = false;
};

void TuneModel(TuneCommand& command) {
  TuningCache& cache = opkit::detail::SharedTuningCache(command.model.tuning_cache);
  for (const std::string& file : command.merged)
    std::fprintf(stderr, "opkit: %s had %zu entries that are new or newer\n",
                 Printable(file).c_str(),
                 FailWith(ExitCode::kBadFile, "", [&] { return cache.MergeFrom(file); }));
  if (!command.model.path.empty() || (command.merged.empty() && command.exported.empty())) {
    const OnnxModel model = LoadModel(command.model);
    TuneOptions options;
    options.plan = PlanOptionsOf(command.model);
    options.inputs = MakeInputs(model.graph, command.model, true);
    options.seconds = command.seconds;
    options.seed = command.model.seed + 1;
    options.cache = &cache;
    options.objective = command.objective;
    options.most_bytes = command.most_bytes;
    options.executors = command.executors;
    options.pareto = command.pareto;
    std::unique_ptr<EnergyCounter> energy;
    if (command.objective == TuneObjective::kEnergy)
      energy = FailWith(ExitCode::kRunFailed, "", [] { return OpenCpuEnergy(); });
    options.energy = energy.get();
    const Graph graph = WithShapes(model.graph, ShapesOf(model.graph, options.inputs));
    const TuneResult result = FailWith(ExitCode::kRunFailed, "",
                                       [&] { return TuneWithProgress(graph, std::move(options)); });
    if (!command.output.empty()) WriteFile(command.output, ToString(result.selection));
    std::string report = ToString(result, !command.explain.empty());
    if (command.pareto) {
      report += "\nfaster or smaller than every other plan:\n";
      for (const size_t i : result.Pareto())
        report +=
            StrCat("  ", result.plans[i].name, ": ", Fixed(result.plans[i].times.median * 1e-6, 3),
                   " ms, ", result.plans[i].bytes, " bytes\n");
    }
    WriteFile(command.explain.empty() ? "-" : command.explain, report);
  } else {
    if (!cache.Save())
      throw Failure(ExitCode::kBadFile, "the tuning cache " + cache.path() + " cannot be written");
    WarnOf(cache);
  }
  if (!command.exported.empty())
    FailWith(ExitCode::kBadFile, "", [&] { cache.Export(command.exported); });
}

}  // namespace

void AddTuneCommand(CLI::App& program) {
  auto command = std::make_shared<TuneCommand>();
  CLI::App* app = program.add_subcommand("tune", "Measure which kernels run a model fastest");
  AddModelOptions(*app, &command->model);
  AddInputOptions(*app, &command->model);
  app->add_option("--objective", command->objective,
                  "Seeks the least time of a run, memory, or energy (RAPL, which only root may "
                  "read)")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, TuneObjective>{{"time", TuneObjective::kTime},
                                               {"memory", TuneObjective::kMemory},
                                               {"energy", TuneObjective::kEnergy}}))
      ->option_text("time|memory|energy=time");
  app->add_option("--memory-bound", command->most_bytes,
                  "Limits the bytes of the plan's arenas and converted weights")
      ->check(WholeNumber(1))
      ->option_text("BYTES");
  app->add_option("--executors", command->executors,
                  "Runs N executors at once and seeks the most runs a second")
      ->check(WholeNumber(1, 1024))
      ->option_text("N=1");
  app->add_flag("--pareto", command->pareto,
                "Also lists the plans that are faster or smaller than every other");
  app->add_option("--budget", command->seconds, "Limits the time that tuning takes")
      ->check(Seconds())
      ->option_text("S=20");
  app->add_option("--cache", command->model.tuning_cache,
                  "Names the tuning cache (default: $OPKIT_TUNING_CACHE, else opkit/tuning.json in "
                  "the user's cache folder)")
      ->option_text("FILE");
  app->add_option("-o,--output", command->output,
                  "Also writes the chosen kernels to this file, for --selection")
      ->option_text("FILE.selection");
  app->add_option(
         "--explain", command->explain,
         "Writes what was measured, of each node with another kernel too, to this file; - is "
         "standard output")
      ->option_text("FILE");
  app->add_option("--merge", command->merged,
                  "Takes over the entries of other tuning caches; needs no model")
      ->option_text("FILE ...");
  app->add_option("--export", command->exported,
                  "Writes the tuning cache to another file; needs no model")
      ->option_text("FILE");
  app->footer(
      "Tune on the machine and with the number of threads that will run the model, while nothing\n"
      "else runs on it. Ctrl-C ends the tuning, which keeps what it has measured.\n\n"
      "Examples:\n"
      "  opkit tune model.onnx --threads 2\n"
      "  opkit run model.onnx --threads 2 --tuned");
  app->callback([command] { TuneModel(*command); });
}

}  // namespace cli
