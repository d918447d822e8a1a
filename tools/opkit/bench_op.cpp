// opkit bench-op: compares the kernels of one operator by time, in turns, on random inputs.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "benchmark_file.hpp"
#include "file.hpp"
#include "library.hpp"
#include "model.hpp"
#include "opkit/base/suggest.hpp"
#include "opkit/op/benchmark/compare_kernels.hpp"
#include "opkit/op/benchmark/plot.hpp"
#include "opkit/op/check/check_data.hpp"
#include "options.hpp"
#include "peak.hpp"
#include "times_diff.hpp"

namespace cli {
namespace {

using namespace opkit;

struct BenchOpCommand {
  std::string op, sweep, json, plot, compare;
  std::vector<std::string> inputs, constants, attributes, libraries, backends, counters;
  std::vector<int> threads = {1};
  ColdData cold = ColdData::kNone;
  double seconds = 1;
  TimesDiffOptions diff;
  bool peak = false, measure_peak = false;
};

// One --input: [NAME=]DTYPE:SHAPE. Extents may be the letter of --sweep.
struct InputText {
  std::string name, dtype, shape;
};
InputText ParseInput(const std::string& text) {
  InputText out;
  std::string rest = text;
  if (const size_t at = text.find('='); at != std::string::npos) {
    out.name = text.substr(0, at);
    rest = text.substr(at + 1);
  }
  const size_t colon = rest.find(':');
  if (colon != std::string::npos) {
    out.dtype = rest.substr(0, colon);
    out.shape = rest.substr(colon + 1);
  }
  if (DTypeFromName(out.dtype) == DType::kUndefined)
    throw Failure(ExitCode::kUsage,
                  "expected --input NAME=DTYPE:SHAPE, such as A=float32:64x64, "
                  "found '" +
                      text + "'");
  return out;
}

// The letter and the numbers of --sweep N=1,2,4; one empty step without it.
struct Sweep {
  std::string letter;
  std::vector<std::string> values = {""};
};
Sweep ParseSweep(const std::string& text) {
  Sweep out;
  if (text.empty()) return out;
  const auto [letter, values] = SplitSetting("--sweep", text);
  out.letter = letter;
  out.values.clear();
  for (size_t at = 0; at <= values.size();) {
    const size_t end = std::min(values.find(',', at), values.size());
    out.values.push_back(values.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

// Puts the inputs in the order of the operator's, by their names where they have one.
std::vector<InputText> Ordered(const OpSchema& schema, const BenchOpCommand& command) {
  std::vector<std::string> known;
  for (const auto& input : schema.inputs()) known.push_back(input.name);
  std::vector<InputText> out;
  std::vector<bool> given;
  for (size_t i = 0; i < command.inputs.size(); ++i) {
    InputText input = ParseInput(command.inputs[i]);
    size_t place = i;
    if (!input.name.empty() && !known.empty()) {
      const auto found = std::ranges::find(known, input.name);
      if (found == known.end())
        throw Failure(ExitCode::kUsage, "operator " + command.op + " has no input '" + input.name +
                                            "'" + SuggestName(input.name, known));
      place = static_cast<size_t>(found - known.begin());
    }
    if (place >= out.size()) out.resize(place + 1), given.resize(place + 1);
    if (given[place])
      throw Failure(ExitCode::kUsage, "--input is given twice for input " + std::to_string(place) +
                                          " of " + command.op);
    given[place] = true;
    out[place] = std::move(input);
    if (out[place].name.empty() && place < known.size()) out[place].name = known[place];
  }
  for (size_t i = 0; i < out.size(); ++i)
    if (!given[i])
      throw Failure(ExitCode::kUsage,
                    "expected --input for input " + std::to_string(i) + " of " + command.op);
  return out;
}

CompareKernelsOptions OptionsOf(const BenchOpCommand& command, const std::vector<InputText>& inputs,
                                const Sweep& sweep, const std::string& value) {
  CompareKernelsOptions options;
  for (const InputText& input : inputs) {
    std::string shape = input.shape;
    for (size_t at = 0; !sweep.letter.empty() && (at = shape.find(sweep.letter, at)) != shape.npos;
         at += value.size())
      shape.replace(at, sweep.letter.size(), value);
    options.inputs.push_back(
        RandomTensor(ParseShape(shape), DTypeFromName(input.dtype), 1 + options.inputs.size()));
    options.constants.push_back(std::ranges::find(command.constants, input.name) !=
                                command.constants.end());
  }
  options.args = ParseAttributes(command.attributes);
  options.backends = command.backends;
  options.threads = command.threads;
  options.cold = command.cold;
  options.counters = command.counters;
  options.timing.seconds = command.seconds;
  options.significance = command.diff.significance;
  return options;
}

std::vector<NamedTimes> TimesOf(const std::vector<KernelComparison>& found) {
  std::vector<NamedTimes> out;
  for (const KernelComparison& comparison : found)
    for (const KernelTimes& row : comparison.rows)
      if (row.refused.empty()) out.push_back({BenchmarkName(comparison, row), row.times.ns});
  return out;
}

// Draws one comparison, or those of a sweep: "MatMul(trans_b=1) float32:Nx64, float32:64x64".
std::string PlotOf(const BenchOpCommand& command, const Sweep& sweep,
                   const std::vector<MachineRates>& peaks,
                   const std::vector<KernelComparison>& found) {
  KernelPlotOptions options;
  options.peaks = peaks;
  if (!sweep.letter.empty()) {
    options.title = command.op;
    for (size_t i = 0; i < command.attributes.size(); ++i)
      options.title += (i == 0 ? "(" : ",") + command.attributes[i];
    if (!command.attributes.empty()) options.title += ")";
    for (size_t i = 0; i < command.inputs.size(); ++i)
      options.title += (i == 0 ? " " : ", ") + command.inputs[i];
    options.axis = sweep.letter;
    options.places = sweep.values;
  }
  return ToSvg(found, options);
}

void RequireCounters(const std::vector<std::string>& names) {
  std::vector<std::string> absent;
  FailWith(ExitCode::kUsage, "",
           [&] { PerfCounters().Open(names, &absent, CounterSource::Threads::kThisAndNew); });
  if (!absent.empty()) throw Failure(ExitCode::kRunFailed, "cannot count " + absent[0]);
}

void BenchOp(const BenchOpCommand& command) {
  if (command.diff.fail_above && command.compare.empty())
    throw Failure(ExitCode::kUsage, "--fail-above compares with the file of --compare OLD.json");
  LoadLibraries(command.libraries);
  const OpSchema* schema = FailWith(ExitCode::kBadModel, "",
                                    [&] { return &OpRegistry::Global().GetSchema(command.op); });
  const std::vector<InputText> inputs = Ordered(*schema, command);
  for (const std::string& name : command.constants)
    if (std::ranges::find(inputs, name, &InputText::name) == inputs.end())
      throw Failure(ExitCode::kUsage, "--constant " + name + " names no input of --input");
  const Sweep sweep = ParseSweep(command.sweep);
  std::optional<OutputFile> file, plot;  // before the work begins
  if (!command.json.empty()) file.emplace(command.json);
  if (!command.plot.empty()) plot.emplace(command.plot);
  std::vector<NamedTimes> before;
  if (!command.compare.empty()) before = ReadBenchmarkTimes(command.compare);
  if (!command.counters.empty()) RequireCounters(command.counters);
  std::vector<MachineRates> peaks;
  for (const int threads : command.threads)
    if (command.peak || command.measure_peak || plot)
      peaks.push_back(PeakOf(threads, command.measure_peak));
  std::vector<KernelComparison> found;
  for (const std::string& value : sweep.values) {
    CompareKernelsOptions options = OptionsOf(command, inputs, sweep, value);
    options.peaks = peaks;
    found.push_back(
        FailWith(ExitCode::kBadInput, "", [&] { return CompareKernels(command.op, options); }));
    if (command.json != "-" && command.plot != "-")
      WriteFile("-", (found.size() > 1 ? "\n" : "") + ToString(found.back()));
  }
  if (file) file->Write(ToJson(found) + "\n");
  if (plot) plot->Write(PlotOf(command, sweep, peaks, found));
  if (!command.compare.empty()) PrintTimesDiff(before, TimesOf(found), command.diff);
}

}  // namespace

void AddBenchOpCommand(CLI::App& program) {
  CLI::App* app = program.add_subcommand("bench-op", "Compare the kernels of an operator by time");
  auto command = std::make_shared<BenchOpCommand>();
  app->add_option("OP", command->op, "An operator's name")->required()->option_text(" ");
  app->add_option("--input", command->inputs,
                  "Gives the dtype and the shape of an input, by its name or in order")
      ->allow_extra_args(false)
      ->option_text("[NAME=]DTYPE:SHAPE ...");
  app->add_option("--constant", command->constants,
                  "Makes an input a constant, as a model's weights are")
      ->allow_extra_args(false)
      ->option_text("NAME ...");
  app->add_option(
         "--attr", command->attributes,
         "Sets an attribute: an integer, a number, true, false, a list such as [1,2], or text")
      ->allow_extra_args(false)
      ->option_text("NAME=VALUE ...");
  AddLibraryOption(*app, &command->libraries);
  app->add_option("--backends", command->backends, "Compares kernels of these backends only")
      ->delimiter(',')
      ->option_text("NAME,...");
  app->add_option("--threads", command->threads, "Sets the numbers of threads")
      ->delimiter(',')
      ->check(WholeNumber(1, 1024))
      ->option_text("N,...=1");
  app->add_option("--cold", command->cold,
                  "Chooses data that is out of the caches before a run: none, weights, all")
      ->transform(
          CLI::CheckedTransformer(std::map<std::string, ColdData>{{"none", ColdData::kNone},
                                                                  {"weights", ColdData::kWeights},
                                                                  {"all", ColdData::kAll}},
                                  CLI::ignore_case)
              .description(""))
      ->option_text("WHICH=none");
  app->add_option("--sweep", command->sweep,
                  "Compares once for each number, which takes the place of the letter in shapes")
      ->option_text("N=1,2,4");
  app->add_option("--seconds", command->seconds, "Limits the time of each comparison")
      ->check(Seconds())
      ->option_text("SECONDS=1");
  app->add_flag("--peak", command->peak,
                "Prints the share of the processor's peak, which it measures the first time");
  AddMeasurePeakOption(*app, &command->measure_peak);
  app->add_option("--counters", command->counters,
                  "Adds counts of one run: cycles, instructions, cache_references, cache_misses, "
                  "branches, branch_misses, task_clock, page_faults, ...")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->option_text("NAME,...");
  app->add_option("--json", command->json,
                  "Writes every sample in Google Benchmark's JSON; - is standard output")
      ->option_text("FILE");
  app->add_option("--plot", command->plot,
                  "Draws the times, over the numbers of --sweep, and the roofline; - is standard "
                  "output")
      ->option_text("FILE.svg");
  app->add_option("--compare", command->compare,
                  "Compares with the samples of an earlier --json file")
      ->option_text("OLD.json");
  AddTimesDiffOptions(*app, "a kernel", false, &command->diff);
  app->footer(
      "Each kernel and configuration runs in turns with the others. A row has the median of its\n"
      "samples with the 95 % interval, and the difference from the first row, tested by the\n"
      "Mann-Whitney test. Samples during which the system took the processor away do not count.\n\n"
      "Examples:\n"
      "  opkit bench-op MatMul --input A=float32:64x64 --input B=float32:64x64 --constant B\n"
      "  opkit bench-op Relu --input float32:Nx64x56x56 --sweep N=1,2,4 --threads 1,2 --cold all\n"
      "  opkit bench-op MatMul --input float32:8xN --input float32:Nx8 --sweep N=8,64 "
      "--plot a.svg\n"
      "  opkit bench-op MaxPool --input float32:1x64x112x112 --attr kernel_shape=[3,3] --peak\n"
      "  opkit bench-op MyOp --library libmy_ops.so --json new.json --compare old.json");
  app->callback([command] { BenchOp(*command); });
}

}  // namespace cli
