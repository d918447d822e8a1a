// opkit compare: runs a model with the given backends and with trusted backends, and names the
// first node whose value differs.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "file.hpp"
#include "model.hpp"
#include "opkit/graph/debug/compare_runs.hpp"
#include "opkit/graph/partition/partitioner.hpp"
#include "options.hpp"

namespace cli {
namespace {

using namespace opkit;

struct CompareCommand {
  ModelOptions model;
  std::vector<std::string> with = {"reference"};
  CompareRunsOptions tolerances;
  bool random = false, end_to_end = false;
};

// Returns the options of the trusted run: backends, or one partitioner, which takes each node by
// itself, so that all values between nodes can be compared.
ModelOptions Trusted(const CompareCommand& command) {
  ModelOptions options = command.model;
  options.backends.clear();
  options.selection.clear();
  options.partition = {};
  const std::string& name = command.with[0];
  const std::vector<std::string> partitioners = PartitionerRegistry::Global().Names();
  if (command.with.size() == 1 && std::ranges::count(partitioners, name) > 0) {
    options.partition = {{name}, {"max_size=1"}};
    PreferBackends({}, "--with");
    return options;
  }
  if (command.with.size() == 1 && name == "onnxruntime")
    throw Failure(ExitCode::kUsage, "ONNX Runtime is not there: no partitioner 'onnxruntime'",
                  "give --library libonnxruntime_ep.so, which examples/partition/onnxruntime_ep.cc "
                  "makes, and set OPKIT_ONNXRUNTIME to ONNX Runtime's shared object");
  PreferBackends(command.with, "--with");
  return options;
}

// Returns the backend of a kernel's name: "eigen" for "eigen winograd".
std::string BackendOf(const std::string& kernel) { return kernel.substr(0, kernel.find(' ')); }

// Names the nodes whose expected values come from a backend that --with does not name: no trusted
// backend has a kernel for them.
void TellUntrusted(const RunComparison& runs, const std::vector<std::string>& with) {
  constexpr size_t kShown = 3;
  std::vector<std::string> nodes;
  for (const ComparedValue& value : runs.values)
    if (std::ranges::count(with, BackendOf(value.expected_backend)) == 0)
      nodes.push_back(Printable(value.node + " by " + value.expected_backend));
  if (nodes.empty()) return;
  const std::string count = Counted(nodes.size(), "value");
  if (nodes.size() > kShown) nodes.resize(kShown), nodes.push_back("...");
  std::string list;
  for (const std::string& node : nodes) list += (list.empty() ? "" : ", ") + node;
  std::fprintf(
      stderr, "opkit: no backend of --with has a kernel for %s; other backends computed them: %s\n",
      count.c_str(), list.c_str());
}

// False if the runs had the same kernels everywhere, so that equal values prove nothing.
bool HasTwoKernels(const RunComparison& runs) {
  return runs.values.empty() || !std::ranges::all_of(runs.values, &ComparedValue::same_kernel);
}

void Compare(CompareCommand& command) {
  if (command.with.empty() || command.with[0].empty())
    throw Failure(ExitCode::kUsage, "expected --with NAME, a backend or a partitioner");
  const OnnxModel model = LoadModel(command.model);
  const auto inputs = MakeInputs(model.graph, command.model, command.random);
  const auto shapes = ShapesOf(model.graph, inputs);
  const Plan plan = MakePlan(model.graph, shapes, command.model);
  const ModelOptions trusted_options = Trusted(command);
  const Plan trusted = MakePlan(model.graph, shapes, trusted_options);
  command.tolerances.node_by_node = !command.end_to_end;
  const RunComparison runs = CompareRuns(plan, trusted, inputs, command.tolerances);
  std::string text = ToString(runs);
  const bool checked = HasTwoKernels(runs);
  // The verdict of runs that differ is the error's text.
  if (!runs.same() || !checked) text.resize(text.size() - runs.Verdict().size() - 1);
  WriteFile("-", text);
  if (runs.same() && !checked)
    std::fputs(
        "opkit: nothing was checked: each value had the same kernel in both runs; give another "
        "backend with --with or --backends, or --with onnxruntime\n",
        stderr);
  if (trusted_options.partition.partitioners.empty()) TellUntrusted(runs, command.with);
  if (!runs.same()) throw Failure(ExitCode::kRunFailed, runs.Verdict());
}

}  // namespace

void AddCompareCommand(CLI::App& program) {
  auto command = std::make_shared<CompareCommand>();
  CLI::App* app = program.add_subcommand(
      "compare", "Run a model on two backends and name the first node that differs");
  AddModelOptions(*app, &command->model);
  AddInputOptions(*app, &command->model);
  app->add_flag("--random", command->random,
                "Fills the inputs that are not given with random values");
  app->add_option(
         "--with", command->with,
         "Names the trusted implementation: backends in order of preference, or a partitioner that "
         "takes each node by itself, such as onnxruntime of --library libonnxruntime_ep.so")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->option_text("NAME,...=reference");
  app->add_option("--rtol", command->tolerances.rtol,
                  "Sets the relative tolerance: a number may differ by A + R * |expected|")
      ->check(NotNegative())
      ->option_text("R=1e-3");
  app->add_option("--atol", command->tolerances.atol, "Sets the absolute tolerance A")
      ->check(NotNegative())
      ->option_text("A=1e-5");
  app->add_flag("--end-to-end", command->end_to_end,
                "Runs the model twice, independently; without this option the trusted nodes read "
                "the values of the first run, so that only nodes with another result differ");
  app->footer(
      "The exit code is 1 if a value differs. Integers, bools and strings must be equal; NaN "
      "equals NaN.\n"
      "The elements of sequences are compared one by one.\n"
      "Values inside the bodies of If, Loop, Scan and Subgraph and inside fused kernels are not\n"
      "compared.\n\n"
      "Examples:\n"
      "  opkit compare model.onnx --input x=x.npy\n"
      "  opkit compare model.onnx --random --backends eigen,reference --with reference\n"
      "  opkit compare model.onnx --random --with onnxruntime --library libonnxruntime_ep.so");
  app->callback([command] { Compare(*command); });
}

}  // namespace cli
