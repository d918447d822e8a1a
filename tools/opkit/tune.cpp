// opkit tune: measures which kernels run a model fastest, and writes the choice to a file.
#include <CLI/CLI.hpp>
#include <csignal>
#include <memory>

#include "file.hpp"
#include "model.hpp"
#include "opkit/graph/tune/tune.hpp"
#include "options.hpp"
#include "terminal.hpp"

namespace cli {
namespace {

using namespace opkit;

struct TuneCommand {
  ModelOptions model;
  std::string output, explain;
  double seconds = 20;
};

volatile std::sig_atomic_t g_interrupted = 0;

// While it exists, Ctrl-C ends the tuning, which keeps what it has measured. A second Ctrl-C ends
// the program.
class InterruptScope {
 public:
  InterruptScope() {
    before_ = std::signal(SIGINT, [](int) {
      g_interrupted = 1;
      std::signal(SIGINT, SIG_DFL);
    });
  }
  InterruptScope(const InterruptScope&) = delete;
  ~InterruptScope() { std::signal(SIGINT, before_); }

 private:
  void (*before_)(int);
};

void TuneModel(TuneCommand& command) {
  const OnnxModel model = LoadModel(command.model);
  TuneOptions options;
  options.plan = PlanOptionsOf(command.model);
  options.inputs = MakeInputs(model.graph, command.model, true);
  options.seconds = command.seconds;
  options.seed = command.model.seed + 1;
  Progress bar("tuning", static_cast<int64_t>(command.seconds * 1000));
  options.progress = [&](const TuneProgress& progress) {
    bar.Update(static_cast<int64_t>(progress.seconds * 1000),
               StrCat(progress.stage, ", ", Counted(static_cast<size_t>(progress.plans), "plan"),
                      ", best ", Fixed(progress.speedup, 2), " times the default's speed"));
    return g_interrupted == 0;
  };
  const InterruptScope scope;
  const TuneResult result = Tune(WithShapes(model.graph, ShapesOf(options.inputs)), options);
  if (!command.output.empty()) WriteFile(command.output, ToString(result.selection));
  WriteFile(command.explain.empty() ? "-" : command.explain, ToString(result));
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
  app->add_option("-o,--output", command->output,
                  "Writes the chosen kernels to this file, for --selection")
      ->option_text("FILE.selection");
  app->add_option("--explain", command->explain,
                  "Writes what was measured to this file (default: standard output)")
      ->option_text("FILE");
  app->footer(
      "Tune on the machine and with the number of threads that will run the model, while nothing\n"
      "else runs on it. Ctrl-C ends the tuning, which keeps what it has measured.\n\n"
      "Examples:\n"
      "  opkit tune model.onnx --threads 2 -o model.selection\n"
      "  opkit run model.onnx --threads 2 --selection model.selection");
  app->callback([command] { TuneModel(*command); });
}

}  // namespace cli
