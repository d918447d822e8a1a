// opkit tune: measures which kernels run a model fastest, and keeps the choice in the tuning cache.
#include <CLI/CLI.hpp>
#include <memory>

#include "file.hpp"
#include "model.hpp"
#include "opkit/graph/tune/plan_tuning.hpp"
#include "options.hpp"

namespace cli {
namespace {

using namespace opkit;

struct TuneCommand {
  ModelOptions model;
  std::string output, explain, exported;
  std::vector<std::string> merged;
  double seconds = 20;
};

void TuneModel(TuneCommand& command) {
  TuningCache& cache = opkit::detail::SharedTuningCache(command.model.tuning_cache);
  for (const std::string& file : command.merged)
    FailWith(ExitCode::kBadFile, "", [&] { return cache.MergeFrom(file); });
  if (!command.model.path.empty() || (command.merged.empty() && command.exported.empty())) {
    const OnnxModel model = LoadModel(command.model);
    TuneOptions options;
    options.plan = PlanOptionsOf(command.model);
    options.inputs = MakeInputs(model.graph, command.model, true);
    options.seconds = command.seconds;
    options.seed = command.model.seed + 1;
    options.cache = &cache;
    const TuneResult result =
        TuneWithProgress(WithShapes(model.graph, ShapesOf(options.inputs)), std::move(options));
    if (!command.output.empty()) WriteFile(command.output, ToString(result.selection));
    WriteFile(command.explain.empty() ? "-" : command.explain, ToString(result));
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
  app->add_option("--explain", command->explain,
                  "Writes what was measured to this file (default: standard output)")
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
