// opkit trace: compares the traces that `opkit run --profile` writes.
#include <CLI/CLI.hpp>
#include <memory>

#include "file.hpp"
#include "program.hpp"
#include "timing.hpp"
#include "trace_times.hpp"

namespace cli {
namespace {

using namespace opkit;

struct DiffCommand {
  std::string before, after;
  bool by_node = false, json = false;
  double significance = 0.01;
  std::optional<double> fail_above;  // percent
};

void Diff(const DiffCommand& command) {
  const TimesOf of = command.by_node ? TimesOf::kNodes : TimesOf::kOperators;
  ProfileDiff diff = FailWith(ExitCode::kBadFile, "", [&] {
    return CompareTimes(ReadTraceTimes(command.before, of), ReadTraceTimes(command.after, of),
                        command.significance);
  });
  if (command.json) {
    WriteFile("-", ToJson(diff) + "\n");
  } else {
    for (ProfileDiffRow& row : diff.rows) row.name = Printable(row.name);
    WriteFile("-", ToString(diff));
  }
  FailIfSlower(diff, command.fail_above);
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
  diff->add_option("--significance", command->significance,
                   "Sets the largest p-value of a significant difference")
      ->check(CLI::Range(1e-9, 0.5))
      ->option_text("P=0.01");
  diff->add_option("--fail-above", command->fail_above,
                   "Exits with code 1 if something is significantly slower by more than PERCENT")
      ->option_text("PERCENT");
  diff->add_flag("--json", command->json, "Prints JSON instead of a table");
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
