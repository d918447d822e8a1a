// opkit bench: measures the speed and the memory of a model, as JSON.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "file.hpp"
#include "model.hpp"
#include "opkit/base/json/json_writer.hpp"
#include "opkit/engine/thread_pool.hpp"
#include "options.hpp"
#include "terminal.hpp"
#include "timing.hpp"

namespace cli {
namespace {

using namespace opkit;
using detail::JsonWriter;

struct BenchCommand {
  ModelOptions model;
  std::string output = "-";
  double seconds = 2;
  int runs = 0;  // 0: `seconds` decides
  int warmup = 3;
  bool nodes = false;
  bool serve = false;
};

Times Measure(Executor& executor, const BenchCommand& command) {
  constexpr size_t kFewest = 5, kMost = 1'000'000;
  for (int i = 0; i < command.warmup; ++i) executor.Run();
  Times times;
  const Stopwatch all;
  const auto goal = static_cast<int64_t>(command.runs > 0 ? command.runs : command.seconds * 1e3);
  Progress progress("measuring", goal);
  const auto wanted = static_cast<size_t>(command.runs);
  while (wanted > 0 ? times.size() < wanted
                    : times.size() < kFewest ||
                          (all.ms() < command.seconds * 1e3 && times.size() < kMost)) {
    const Stopwatch watch;
    executor.Run();
    times.Add(watch.ms());
    progress.Update(
        wanted > 0 ? static_cast<int64_t>(times.size()) : static_cast<int64_t>(all.ms()),
        Counted(times.size(), "run"));
  }
  return times;
}

// Measures for the seconds that each line of standard input says, and answers with a line of JSON.
// So several programs can measure in turns, each with its model loaded.
void Serve(Executor& executor, BenchCommand command, double first_result_ms) {
  const auto answer = [](std::string line) {
    WriteFile("-", line + "\n");
    std::fflush(stdout);
  };
  answer(StrCat("{\"first_result_ms\": ", first_result_ms, "}"));
  for (std::string line; std::getline(std::cin, line);) {
    if (const std::string why = Seconds()(line); !why.empty())
      throw Failure(ExitCode::kUsage, "--serve: " + why);
    std::from_chars(line.data(), line.data() + line.size(), command.seconds);
    const Times times = Measure(executor, command);
    answer(StrCat("{\"runs\": ", times.size(), ", \"median_ms\": ", times.Percentile(50),
                  ", \"min_ms\": ", times.Percentile(0), "}"));
  }
}

void WriteRow(const NetBenchmark::Row& row, const Plan* plan, JsonWriter& json) {
  json.NewLine("    ").BeginObject().Member("op", row.op);
  if (plan) {
    json.Member("name", row.name).Member("node", row.node);
    const NodeChoice choice = plan->choice(row.node);
    json.Member("backend", choice.kernel->backend);
    if (!choice.config.variant.empty()) json.Member("variant", choice.config.variant);
    const std::vector<std::string>& outputs = plan->graph().node(row.node).outputs();
    if (!outputs.empty() && !outputs[0].empty())
      json.Member("output", ToString(plan->type(outputs[0])));
  } else {
    json.Member("count", row.count);
  }
  json.Member("ms", row.ms).Member("share", row.share);
  json.Member("flops", row.flops).Member("bytes", row.bytes).EndObject();
}
void WriteRows(const char* key, const std::vector<NetBenchmark::Row>& rows, const Plan* plan,
               JsonWriter& json) {
  json.NewLine("  ").Key(key).BeginArray();
  for (const NetBenchmark::Row& row : rows) WriteRow(row, plan, json);
  if (!rows.empty()) json.NewLine("  ");
  json.EndArray();
}

void Bench(BenchCommand& command) {
  const int64_t memory_before = ResidentBytes();
  const Stopwatch reading;
  OnnxModel model = LoadModel(command.model);
  const double read_ms = reading.ms();
  const auto inputs = MakeInputs(model.graph, command.model, true);
  const Stopwatch planning;
  command.model.release_constants = true;
  Executor executor(MakePlan(model.graph, inputs, command.model));
  for (const NamedTensor& input : inputs) executor.Bind(input.name, input.tensor);
  const double plan_ms = planning.ms();
  executor.Run();
  const double first_result_ms = read_ms + planning.ms();
  model = OnnxModel();  // the plan has all that a run reads
  if (command.serve) return Serve(executor, command, first_result_ms);
  OutputFile output(command.output);  // fails before the measurement, not after it
  const Times times = Measure(executor, command);

  std::string report;
  JsonWriter json(report);
  const auto add = [&](const std::string& key, const auto& value) {
    json.NewLine("  ").Member(key, value);
  };
  json.BeginObject();
  add("model", command.model.path);
  json.NewLine("  ").Key("inputs").BeginObject();
  for (const NamedTensor& input : inputs)
    json.Member(input.name, StrCat(input.tensor.dtype(), input.tensor.shape()));
  json.EndObject();
  add("threads", NumThreads());
  if (!command.model.device.empty()) add("device", command.model.device);
  add("runs", times.size());
  add("median_ms", times.Percentile(50));
  add("mean_ms", times.mean());
  add("min_ms", times.Percentile(0));
  for (const int percent : {10, 25, 75, 90, 95, 99})
    add(StrCat("p", percent, "_ms"), times.Percentile(percent));
  add("max_ms", times.Percentile(100));
  add("read_ms", read_ms);
  add("plan_ms", plan_ms);
  add("load_ms", read_ms + plan_ms);
  add("first_result_ms", first_result_ms);
  add("peak_memory_bytes", PeakResidentBytes());
  add("memory_before_bytes", memory_before);
  const MemorySummary memory = executor.plan().memory();
  add("arena_bytes", memory.arena_bytes);
  add("arena_lower_bound_bytes", memory.lower_bound_bytes);
  if (command.nodes) {
    constexpr int kRuns = 10;
    const NetBenchmark nodes = TimeNodes(executor, kRuns);
    WriteRows("operators", nodes.types, nullptr, json);
    WriteRows("nodes", nodes.nodes, &executor.plan(), json);
  }
  json.NewLine().EndObject();
  output.Write(report + "\n");
}

}  // namespace

void AddBenchCommand(CLI::App& program) {
  auto command = std::make_shared<BenchCommand>();
  CLI::App* app = program.add_subcommand("bench", "Measure a model's speed and memory");
  AddModelOptions(*app, &command->model);
  AddDeviceOption(*app, &command->model);
  AddTunedOptions(*app, &command->model);
  AddInputOptions(*app, &command->model);
  app->add_flag("--random")
      ->description("Changes nothing: inputs that are not given are random in any case");
  CLI::Option* seconds =
      app->add_option("--seconds", command->seconds,
                      "Sets the duration of the measurement; at least 5 runs are measured")
          ->check(Seconds())
          ->option_text("S=2");
  CLI::Option* runs = app->add_option("--runs", command->runs, "Measures N runs instead")
                          ->check(WholeNumber(1, 1'000'000))
                          ->option_text("N");
  app->add_option("--warmup", command->warmup,
                  "Sets the number of runs between the first run and the measured ones")
      ->check(WholeNumber(0, 1'000'000))
      ->option_text("N=3");
  CLI::Option* nodes =
      app->add_flag("--nodes", command->nodes, "Also measures every node, in separate runs");
  CLI::Option* output = app->add_option("-o,--output", command->output,
                                        "Writes the JSON to this file; - is standard output");
  output->option_text("FILE=-");
  app->add_flag("--serve", command->serve,
                "Waits for lines on standard input: each is a number of seconds to measure, "
                "answered by a line of JSON")
      ->excludes(output)
      ->excludes(nodes)
      ->excludes(runs)
      ->excludes(seconds);
  app->footer(
      "Inputs that are not given get random values. The JSON has median_ms, mean_ms, min_ms, "
      "max_ms and\n"
      "percentiles of a run, load_ms (read_ms and plan_ms), first_result_ms (from opening the "
      "file\n"
      "to the end of the first run) and peak_memory_bytes (resident, of the whole process).\n\n"
      "Examples:\n"
      "  opkit bench model.onnx\n"
      "  opkit bench model.onnx --threads 2 --shape x=1x3x48x320 --nodes -o bench.json");
  AddBenchCompareCommand(*app);
  app->callback([command, app] {
    if (app->get_subcommands().empty()) Bench(*command);
  });
}

}  // namespace cli
