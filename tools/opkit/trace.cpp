// opkit trace: compares the traces that `opkit run --profile` writes.
#include <CLI/CLI.hpp>
#include <memory>

#include "program.hpp"
#include "times_diff.hpp"
#include "trace_times.hpp"

namespace cli {
namespace {

using namespace opkit;

struct DiffCommand {
  std::string before, after;
  bool by_node = false;
  TimesDiffOptions diff;
};

void Diff(const DiffCommand& command) {
  const TimesOf of = command.by_node ? TimesOf::kNodes : TimesOf::kOperators;
  const auto read = [&](const std::string& path) {
    return FailWith(ExitCode::kBadFile, "", [&] { return ReadTraceTimes(path, of); });
  };
  const std::vector<NamedTimes> before = read(command.before);
  PrintTimesDiff(before, read(command.after), command.diff);
}

}  // namespace

void AddTraceCommand(CLI::App& program) {
  CLI::App* app = program.add_subcommand("trace", "Compare traces of runs");
  app->require_subcommand(1);
  app->footer("Examples:\n  opkit trace diff before.json after.json");
  auto command = std::make_shared<DiffCommand>();
  CLI::App* diff =
      app->add_subcommand("diff", "Show which operators got slower between two traces");
  diff->add_option("BEFORE", command->before, "The first trace, as JSON")
      ->required()
      ->option_text(" ");
  diff->add_option("AFTER", command->after, "The second trace, as JSON")
      ->required()
      ->option_text(" ");
  diff->add_flag("--by-node", command->by_node, "Compares nodes instead of operators");
  AddTimesDiffOptions(*diff, "an operator", true, &command->diff);
  diff->footer(
      "Compares medians and tests the difference by the Mann-Whitney test, corrected for the\n"
      "number of rows. Each trace needs about ten runs; on a busy machine, record them in "
      "turns.\n\n"
      "Examples:\n"
      "  opkit run model.onnx --random --repeat 50 --profile before.json\n"
      "  opkit run model.onnx --random --repeat 50 --backends reference --profile after.json\n"
      "  opkit trace diff before.json after.json --by-node");
  diff->callback([command] { Diff(*command); });
}

}  // namespace cli
