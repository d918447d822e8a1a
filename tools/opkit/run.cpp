// opkit run: runs a model on .npy files or random numbers, and writes .npy files.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>

#include "file.hpp"
#include "model.hpp"
#include "npy.hpp"
#include "opkit/core/sequence.hpp"
#include "opkit/engine/thread_pool.hpp"
#include "opkit/graph/debug/run_values.hpp"
#include "opkit/graph/partition/report.hpp"
#include "opkit/graph/run_profile.hpp"
#include "opkit/profile/profile_file.hpp"
#include "opkit/profile/profiler.hpp"
#include "opkit/report/report.hpp"
#include "options.hpp"
#include "peak.hpp"
#include "ranks.hpp"
#include "terminal.hpp"
#include "timing.hpp"

namespace cli {
namespace {

using namespace opkit;

struct RunCommand {
  ModelOptions model;
  std::optional<std::string> output_dir, dump, profile, report, explain, save_selection;
  std::vector<std::string> counters;
  bool critical_path = false;
  int repeat = 1;
  int ranks = 0;  // of --pipeline; 0: one process
  bool random = false, table = false, measure_peak = false;
};

// Makes a distinct file name for each value. A value's name that is a valid file name is kept;
// other values, and the second value with an equal name, get a file name that is still free.
class FileNames {
 public:
  // `values`: NamedTensors, or another range of structs with a name.
  template <class Values>
  explicit FileNames(const Values& values) {
    for (const auto& value : values)
      if (Replaced(value.name) == value.name) plain_.insert(value.name);
    used_ = plain_;
  }
  std::string For(const std::string& value) {
    const std::string name = Replaced(value);
    if (name == value && plain_.erase(name) > 0) return name + ".npy";
    return Unused(name) + ".npy";
  }
  // Returns the file's name for an element of a sequence.
  std::string For(const std::string& value, size_t element) {
    return Unused(StrCat(Replaced(value), ".", element)) + ".npy";
  }

 private:
  std::string Unused(const std::string& name) {
    std::string unique = name;
    for (int n = 2; !used_.insert(unique).second; ++n) unique = name + "_" + std::to_string(n);
    return unique;
  }
  static std::string Replaced(const std::string& value) {
    constexpr size_t kLongest = 200;  // file systems allow 255 bytes
    std::string name;
    for (const char c : value.substr(0, kLongest)) {
      const bool kept = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                        (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
      name += kept ? c : '_';
    }
    return name;
  }

  std::set<std::string> used_, plain_;  // plain_: valid names not taken yet
};

// Returns the first few elements, for a run without --output-dir.
std::string Preview(const Tensor& tensor) {
  constexpr int64_t kShown = 6;
  constexpr size_t kLongestText = 80;
  std::string out;
  if (tensor.dtype() == DType::kString)
    for (const std::string& text : tensor.ToVector<std::string>())
      if (out += StrCat(" \"", Printable(text), "\""); out.size() > kLongestText)
        return out + " ...";
  if (tensor.dtype() == DType::kSequence || tensor.dtype() == DType::kOptional)
    for (const Tensor& element : ElementsOf(tensor))
      if (out += StrCat(" ", element.dtype(), element.shape()); out.size() > kLongestText)
        return out + " ...";
  if (IsObject(tensor.dtype())) return out;
  DispatchDType<bool, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t,
                float16, bfloat16, float, double>(tensor.dtype(), [&]<class T>() {
    const Tensor dense = tensor.is_dense() ? tensor : tensor.Contiguous();
    for (int64_t i = 0; i < tensor.numel() && i < kShown; ++i) {
      const T value = dense.data<T>()[i];
      out += " ";
      if constexpr (std::is_integral_v<T>)
        out += StrCat(value);
      else
        out += StrCat(static_cast<double>(value));
    }
  });
  return out + (tensor.numel() > kShown ? " ..." : "");
}

void MakeFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error || !std::filesystem::is_directory(path, error))
    throw Failure(ExitCode::kBadFile,
                  "cannot make the folder '" + path + "'" + (error ? ": " + error.message() : ""));
}

// Converts bfloat16, which NumPy lacks, to float32.
Tensor ForNumPy(const Tensor& tensor) {
  if (tensor.dtype() != DType::kBFloat16) return tensor;
  Tensor wide(tensor.shape(), DType::kFloat32);
  const bfloat16* from = tensor.data<bfloat16>();
  std::transform(from, from + tensor.numel(), wide.mutable_data<float>(),
                 [](bfloat16 value) { return static_cast<float>(value); });
  return wide;
}

// Writes values to .npy files of a folder: a tensor to NAME.npy, a sequence to NAME.0.npy,
// NAME.1.npy and so on, an optional value as what it holds, or to no file if it is absent.
class ValueFiles {
 public:
  template <class Values>
  ValueFiles(const Values& values, const std::string& folder) : names_(values), folder_(folder) {}

  // Returns the files' names. Throws the errors of SaveNpy.
  std::vector<std::string> Write(const std::string& name, const Tensor& value) {
    if (value.dtype() == DType::kOptional) {
      const std::span<const Tensor> held = ElementsOf(value);
      return held.empty() ? std::vector<std::string>() : Write(name, held[0]);
    }
    if (value.dtype() != DType::kSequence) return {Save(names_.For(name), value)};
    std::vector<std::string> files;
    for (const Tensor& element : ElementsOf(value))
      files.push_back(Save(names_.For(name, files.size()), element));
    return files;
  }

 private:
  std::string Save(const std::string& file, const Tensor& tensor) const {
    const std::string path = (std::filesystem::path(folder_) / file).string();
    SaveNpy(path, tensor);
    return path;
  }

  FileNames names_;
  const std::string folder_;
};

// Says where a value is: "a.npy", "s.0.npy to s.3.npy", or "no file".
std::string PlaceOf(const std::vector<std::string>& files) {
  if (files.empty()) return "no file";
  return files.size() == 1 ? files[0] : StrCat(files.front(), " to ", files.back());
}

// Writes all outputs that NumPy has, and then throws for the first that it lacks.
void WriteOutputs(const NamedTensors& outputs, const std::string& folder) {
  ValueFiles files(outputs, folder);
  Table table("lll");
  std::string lacking;
  for (const NamedTensor& output : outputs) {
    std::string place;
    if (folder.empty()) {
      place = Preview(OnHost(output.tensor));
    } else {
      try {
        place = PlaceOf(files.Write(output.name, OnHost(output.tensor)));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kUnsupported)
          throw Failure(ExitCode::kBadFile, Describe(error));
        if (lacking.empty()) lacking = Describe(error);
        place = "not written";
      }
    }
    table.Add(
        {Printable(output.name), StrCat(output.tensor.dtype(), output.tensor.shape()), place});
  }
  WriteFile("-", table.Format(false, stdout));
  if (!lacking.empty()) throw Failure(ExitCode::kBadFile, lacking);
}

// Writes all values that NumPy has, and names the others on stderr.
void Dump(const std::vector<NodeValue>& values, const std::string& folder) {
  ValueFiles files(values, folder);
  size_t written = 0;
  for (const NodeValue& value : values) {
    try {
      files.Write(value.name, ForNumPy(OnHost(value.tensor)));
      ++written;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupported)
        throw Failure(ExitCode::kBadFile, Describe(error));
      std::fprintf(stderr, "opkit: '%s' is not written: %s\n", Printable(value.name).c_str(),
                   Printable(Describe(error)).c_str());
    }
  }
  std::fprintf(stderr, "wrote %s to %s\n", Counted(written, "value").c_str(),
               Printable(folder).c_str());
}

// Returns the last run for the report; an empty one if its records were dropped.
RunReport LastRun(const Plan& plan) {
  try {
    return ReportOfRun(plan, Profiler::Read());
  } catch (const Error&) {
    return {};
  }
}

void WriteProfile(const RunCommand& command, const Plan& plan) {
  FailWith(ExitCode::kBadFile, "", [&] {
    if (command.profile) detail::SaveProfileFile(Profiler::Read(), *command.profile);
    if (command.report) {
      ProfileTableOptions table;
      table.peak = PeakOf(NumThreads(), command.measure_peak);
      RunReport run = LastRun(plan);
      if (!command.model.partition.partitioners.empty())
        run.partition = ToJson(plan.partition_report());
      SaveReport(Profiler::Read(), *command.report, table, run);
    }
  });
}

// Writes what the options of a run on several ranks ask for. Rank 0 has the profiles.
void WriteProfile(const RunCommand& command, const RanksRun& ranks) {
  if (ranks.profiles.empty()) return;
  FailWith(ExitCode::kBadFile, "", [&] {
    const Profile merged = MergedProfile(ranks.profiles);
    if (command.profile) {
      const auto& path = *command.profile;
      // The other formats have the ranks in the names of threads.
      bool is_merged = false;
      for (const char* end : {".html", ".pftrace", ".perfetto-trace"})
        is_merged |= path.ends_with(end);
      if (is_merged)
        detail::SaveProfileFile(merged, path);
      else
        SaveClusterTrace(ranks.profiles, path);
    }
    if (command.report) {
      ProfileTableOptions table;
      table.peak = PeakOf(NumThreads(), command.measure_peak);
      SaveReport(merged, *command.report, table, ReportOfRun(ranks.run));
    }
  });
}

void PrintTimes(const Times& times, const std::string& where) {
  std::fprintf(stderr, "%zu runs on %s: median %s ms, %s to %s\n", times.size(), where.c_str(),
               Fixed(times.Percentile(50), 3).c_str(), Fixed(times.Percentile(0), 3).c_str(),
               Fixed(times.Percentile(100), 3).c_str());
}

// Writes the results of a run on several ranks, or of one of them.
void WriteRun(const RunCommand& command, const RanksRun& run) {
  WriteProfile(command, run);
  WriteOutputs(run.outputs, command.output_dir.value_or(""));
  if (command.critical_path && !run.profiles.empty()) {
    if (run.run.processes.empty())
      throw Failure(ExitCode::kRunFailed, "the profile has no complete run of all ranks");
    WriteFile("-", "\n" + ToString(run.run));
  }
  if (run.times.size() > 1)
    PrintTimes(run.times, Counted(static_cast<size_t>(command.ranks), "rank"));
}

void RunModel(RunCommand& command) {
  OnnxModel model = LoadModel(command.model);
  const auto inputs = MakeInputs(model.graph, command.model, command.random);
  if (command.ranks > 0) {
    if (command.output_dir) MakeFolder(*command.output_dir);  // fails before the run
    const bool profile = command.profile || command.report || command.critical_path;
    RunOnRanks(model.graph, inputs, command.model, command.ranks, command.repeat, profile,
               [&](const RanksRun& run) { WriteRun(command, run); });
    return;
  }
  command.model.release_constants = true;
  Executor executor(MakePlan(model.graph, inputs, command.model));
  model = OnnxModel();  // the plan has all that a run reads
  for (const auto& folder : {command.output_dir, command.dump})
    if (folder) MakeFolder(*folder);  // fails before the run, not after it
  for (const NamedTensor& input : inputs) executor.Bind(input.name, input.tensor);
  Times times;
  if (command.profile || command.report || command.critical_path)
    FailWith(ExitCode::kUsage, "", [&] {
      Profiler::Start({.shapes = true, .memory = true, .counters = command.counters});
    });
  {
    Progress progress("running", command.repeat);
    for (int i = 0; i < command.repeat; ++i) {
      const Stopwatch watch;
      executor.Run();
      times.Add(watch.ms());
      progress.Update(i + 1, StrCat(i + 1, " of ", command.repeat));
    }
  }
  Profiler::Stop();
  WriteProfile(command, executor.plan());
  if (command.dump) Dump(RunKeepingValues(executor), *command.dump);
  WriteOutputs(executor.outputs(), command.output_dir.value_or(""));
  if (command.table) WriteFile("-", "\n" + ToString(TimeNodes(executor, command.repeat)));
  if (command.critical_path)
    WriteFile("-", "\n" + ToString(ProfileOfRun(executor.plan(), Profiler::Read())));
  if (command.explain) {
    const Explanation explanation = executor.plan().Explain();
    const bool json = command.explain->ends_with(".json");
    WriteFile(*command.explain, json ? ToJson(explanation) : ToString(explanation));
  }
  if (command.save_selection)
    WriteFile(*command.save_selection, ToString(executor.plan().selection()));
  if (command.repeat > 1) PrintTimes(times, Counted(static_cast<size_t>(NumThreads()), "thread"));
}

}  // namespace

void AddRunCommand(CLI::App& program) {
  auto command = std::make_shared<RunCommand>();
  CLI::App* app = program.add_subcommand("run", "Run a model on .npy files");
  AddModelOptions(*app, &command->model);
  AddDeviceOption(*app, &command->model);
  AddTunedOptions(*app, &command->model);
  AddInputOptions(*app, &command->model);
  app->add_flag("--random", command->random,
                "Fills the inputs that are not given with random values");
  app->add_option(
         "--output-dir", command->output_dir,
         "Writes each output to DIR/NAME.npy, with _ for characters other than letters, "
         "digits and _.-, and a sequence to NAME.0.npy, NAME.1.npy and so on; without this "
         "option the first values are printed")
      ->option_text("DIR");
  app->add_option(
         "--dump", command->dump,
         "Runs once more and writes the outputs of every node to DIR/NAME.npy, named as by "
         "--output-dir (bfloat16 as float32); values inside a fused kernel, and those of types "
         "that "
         "NumPy lacks, are not written")
      ->option_text("DIR");
  app->add_option("--repeat", command->repeat, "Runs the model N times and prints the median time")
      ->check(WholeNumber(1, 1'000'000'000))
      ->option_text("N=1");
  CLI::Option* const pipeline =
      app->add_option(
             "--pipeline", command->ranks,
             "Cuts the model into N stages of about the same time, and runs each on a rank "
             "of its own: a thread of this program, or a process of mpirun -n N")
          ->check(WholeNumber(1, 4096))
          ->option_text("N");
  app->add_flag("--table", command->table,
                "Also runs N times more and prints the median time and the rate of each node");
  app->add_flag("--critical-path", command->critical_path,
                "Also prints the chain of nodes that determined the time of the last run");
  app->add_option("--explain", command->explain,
                  "Writes which implementation runs each node and why, and the conversions between "
                  "layouts; as JSON if the name ends with .json; - is standard output")
      ->option_text("FILE");
  app->add_option("--save-selection", command->save_selection,
                  "Writes the chosen implementation of each node, for --selection")
      ->option_text("FILE");
  app->add_option("--profile", command->profile,
                  "Writes a trace of the runs for https://ui.perfetto.dev: as JSON, or in "
                  "Perfetto's smaller binary format if the name ends with .pftrace, or as a web "
                  "page if it ends with .html")
      ->check(FileName())
      ->option_text("FILE");
  app->add_option(
         "--counters", command->counters,
         "Records these counters for each operator, for example cycles,cache_misses,page_faults")
      ->option_text("NAME,...")
      ->delimiter(',');
  app->add_option("--report", command->report,
                  "Writes a web page about the runs: a timeline, a table, the graph coloured by "
                  "time, its memory, and the subgraphs of partitioners")
      ->check(FileName())
      ->option_text("FILE.html");
  AddMeasurePeakOption(*app, &command->measure_peak);
  // The options about the one plan of a run.
  for (const char* option : {"--dump", "--table", "--explain", "--tuned", "--selection",
                             "--save-selection", "--counters"})
    pipeline->excludes(app->get_option(option));
  app->footer(
      "Examples:\n"
      "  opkit run model.onnx --input x=x.npy --output-dir out\n"
      "  opkit run model.onnx --random --shape x=1x3x48x320 --table --repeat 10\n"
      "  opkit run model.onnx --input a=a.npy b=b.npy --backends reference --threads 1\n"
      "  opkit run model.onnx --input words=words.npy parts=first.npy,second.npy\n"
      "  opkit run model.onnx --random --library libmy_ops.so\n"
      "  opkit run model.onnx --random --pipeline 2 --repeat 100 --profile trace.json");
  app->callback([command] { RunModel(*command); });
}

}  // namespace cli
