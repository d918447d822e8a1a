// opkit bench compare: compares two files of benchmarks and says which differences are real.
#include <CLI/CLI.hpp>
#include <memory>

#include "benchmark_file.hpp"
#include "program.hpp"
#include "times_diff.hpp"

namespace cli {
namespace {

struct BenchCompareCommand {
  std::string before, after;
  TimesDiffOptions diff;
};

}  // namespace

void AddBenchCompareCommand(CLI::App& bench) {
  auto command = std::make_shared<BenchCompareCommand>();
  CLI::App* app =
      bench.add_subcommand("compare", "Show which benchmarks got slower between two files");
  app->add_option("OLD", command->before, "The first file, Google Benchmark's JSON")
      ->required()
      ->option_text(" ");
  app->add_option("NEW", command->after, "The second file")->required()->option_text(" ");
  AddTimesDiffOptions(*app, "a benchmark", true, &command->diff);
  app->footer(
      "Compares benchmarks of the same name by the medians of their repetitions, and tests the\n"
      "difference by the Mann-Whitney test, corrected for the number of rows (Holm 1979). Lists\n"
      "what is in one file only. Each row needs about ten repetitions; on a busy machine, record\n"
      "the two programs in turns.\n\n"
      "Examples:\n"
      "  opkit bench compare old.json new.json --fail-above 5\n\n"
      "Programs that write such files:\n"
      "  opkit bench-op Relu --input float32:1000 --json old.json\n"
      "  ./my_bench --benchmark_repetitions=20 --benchmark_out=old.json\n\n"
      "The JSON of opkit bench MODEL is no such file: it has no time of a single run. To compare\n"
      "two versions of a model:\n"
      "  opkit run old.onnx --random --repeat 50 --profile old.json\n"
      "  opkit run new.onnx --random --repeat 50 --profile new.json\n"
      "  opkit trace diff old.json new.json");
  app->callback([command, &bench] {
    for (const CLI::Option* one : bench.get_options())
      if (one->count() > 0)
        throw Failure(ExitCode::kUsage,
                      one->get_name() + " belongs to opkit bench MODEL, not to opkit bench compare",
                      "for a model in a file 'compare' write ./compare");
    const auto before = ReadBenchmarkTimes(command->before);
    PrintTimesDiff(before, ReadBenchmarkTimes(command->after), command->diff);
  });
}

}  // namespace cli
