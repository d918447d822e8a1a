// Runs the node corpus of the onnx package: every case whose operators and types are built, once on
// every backend that claims it; a program with kernels for CUDA leaves out the backends of the CPU.
// skipped.txt names all others, each with its reason, and nothing else.
//   conformance_test [FILTER...] [--update] [--verbose] [--list=FILE]
// A FILTER is a case's name or a pattern like 'test_softmax*'. --update writes the list anew for
// the cases that it looked at.
#include <dirent.h>
#include <fnmatch.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>

#ifdef OPKIT_CONFORMANCE_OPS
#include OPKIT_CONFORMANCE_OPS
#endif
#ifdef OPKIT_CONFORMANCE_READER
#include OPKIT_CONFORMANCE_READER
#else
#include "opkit/interop/onnx.hpp"
#endif
#include "model_facts.hpp"
#include "opkit/graph/executor.hpp"
#include "support/backends.hpp"
#include "support/compare.hpp"

namespace {

constexpr int kFewest = 900;  // cases that pass on one of the backends

using Names = std::vector<std::string>;

struct Options {
  std::string cases;  // the folder that holds them
  std::string list;   // of those skipped
  Names filters;
  bool update = false;
  bool verbose = false;
};

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) opkit::Throw(opkit::ErrorCode::kNotFound, "cannot read ", path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string Join(const auto& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

// Why a case may be left out; empty where it must pass.
std::string WhySkipped(const ModelFacts& facts) {
  static const std::set<std::string> kBuilt = {
      "float",      "double",         "bool",       "int8",       "int16",        "int32",
      "int64",      "uint8",          "uint16",     "uint32",     "uint64",       "int2",
      "uint2",      "int4",           "uint4",      "float4e2m1", "float8e4m3fn", "float8e4m3fnuz",
      "float8e5m2", "float8e5m2fnuz", "float8e8m0", "string",     "sequence",     "optional"};
  // The reader makes nodes of other operators of these.
  static const std::set<std::string> kRewritten = {"Scatter", "Upsample"};
  Names operators, types;
  for (const std::string& op : facts.operators)
    if (!opkit::OpRegistry::Global().FindSchema(op) && !kRewritten.contains(op))
      operators.push_back(op);
  if (!operators.empty()) return "operator not built: " + Join(operators);
  for (const std::string& type : facts.types)
    if (!kBuilt.contains(type) && type != "undefined") types.push_back(type);
  return types.empty() ? "" : "type not built: " + Join(types);
}

// True if only the kernels of this backend run an operator of the case. Programs without the
// backend do not run the case.
bool NeedsBackend(const ModelFacts& facts, std::string_view backend) {
  return backend == "re2" && facts.operators.contains("RegexFullMatch");
}

// The corpus has spectra in float32: numbers that should be 0 are rounding errors up to 2e-7.
Tolerance ToleranceOf(const std::string& folder) {
  Tolerance tolerance;
  if (folder.find("/test_dft_inverse") != std::string::npos) tolerance.atol = 1e-6;
  return tolerance;
}

// test_data_set_0/input_0.pb, input_1.pb, …
std::vector<opkit::Tensor> ReadValues(const std::string& prefix,
                                      const std::vector<opkit::TensorInfo>& types) {
  std::vector<opkit::Tensor> out;
  for (size_t i = 0;; ++i) {
    const std::string path = opkit::StrCat(prefix, i, ".pb");
    if (!std::ifstream(path)) return out;
    out.push_back(
        opkit::ReadOnnxValue(ReadFile(path), i < types.size() ? types[i] : opkit::TensorInfo()));
  }
}

struct Outcome {
  bool claimed = true;  // the backend's kernels run a part of it
  std::string failure;  // empty: passed
};

// One case on one backend, with the reference kernels where that has none. The backends of CUDA run
// on the first device.
class CaseRun {
 public:
  CaseRun(const std::string& folder, const Backend& backend) : folder_(folder), backend_(backend) {}

  Outcome Run() {
    const PreferredBackend preferred(backend_);
    try {
      return RunModel(preferred.options());
    } catch (const std::exception& error) {
      return {true, error.what()};
    }
  }

 private:
  Outcome RunModel(const opkit::PlanOptions& plan_options) {
    const opkit::OnnxModel model = opkit::LoadOnnxModel(folder_ + "/model.onnx");
    const std::string data = folder_ + "/test_data_set_0/";
    const opkit::Graph& graph = model.graph;
    std::vector<opkit::TensorInfo> types;
    for (const opkit::Graph::Input& input : graph.inputs()) types.push_back(input.info);
    const std::vector<opkit::Tensor> inputs = ReadValues(data + "input_", types);
    const std::vector<opkit::Tensor> expected = ReadValues(data + "output_", model.output_types);
    if (inputs.size() != graph.inputs().size() || expected.size() != graph.outputs().size())
      return {true, opkit::StrCat("the graph has ", graph.inputs().size(), " inputs and ",
                                  graph.outputs().size(), " outputs, but the data ", inputs.size(),
                                  " and ", expected.size())};
    std::vector<opkit::NamedTensor> feeds;
    for (size_t i = 0; i < inputs.size(); ++i)
      feeds.push_back({graph.inputs()[i].name, inputs[i].Contiguous()});
    const opkit::Plan plan = opkit::Compile(graph, plan_options);
    opkit::Executor executor(plan);
    // Twice: what an operator keeps from one run must not change the next.
    for (const char* run : {"", "in the second run, "}) {
      const opkit::NamedTensors outputs = executor.Run(feeds);
      size_t i = 0;
      for (const auto& [name, made] : outputs) {
        const opkit::Tensor found = OnHost(made);
        const std::string difference = DrawsNumbers(graph)
                                           ? DifferenceOfTypes(found, expected[i])
                                           : Difference(found, expected[i], ToleranceOf(folder_));
        if (!difference.empty())
          return {true, opkit::StrCat(run, "output ", i, " '", name, "': ", difference)};
        ++i;
      }
      for (size_t k = 0; k < feeds.size(); ++k)
        if (!(opkit::Attribute(feeds[k].tensor) == opkit::Attribute(inputs[k])))
          return {true, opkit::StrCat(run, "input '", feeds[k].name, "' was written to")};
    }
    return {backend_.IsReference() || Uses(plan), {}};
  }
  // True if the results depend on random numbers, of which ONNX says no more than the distribution.
  static bool DrawsNumbers(const opkit::Graph& graph) {
    static const std::set<std::string> kRandom = {"Bernoulli",     "Multinomial",
                                                  "RandomNormal",  "RandomNormalLike",
                                                  "RandomUniform", "RandomUniformLike"};
    return std::any_of(graph.nodes().begin(), graph.nodes().end(),
                       [](const auto& node) { return kRandom.contains(node.type()); });
  }
  static std::string DifferenceOfTypes(const opkit::Tensor& found, const opkit::Tensor& expected) {
    if (found.dtype() == expected.dtype() && found.shape() == expected.shape()) return {};
    return opkit::StrCat("is ", found, ", expected ", expected);
  }
  bool Uses(const opkit::Plan& plan) const {
    for (int node = 0; node < plan.graph().num_nodes(); ++node)
      if (plan.choice(node).kernel->backend == backend_.name &&
          plan.choice(node).kernel->device == backend_.device)
        return true;
    return false;
  }

  const std::string folder_;
  const Backend backend_;
};

class Conformance {
 public:
  explicit Conformance(Options options) : options_(std::move(options)) {}

  int Run() {
    ReadList();
    for (const std::string& name : Cases()) Try(name);
    if (options_.update) {
      WriteList();
    } else if (options_.filters.empty()) {
      for (const auto& [name, reason] : list_)
        if (!seen_.contains(name)) Fail(name, "is listed, but the corpus has no such case");
      int most = 0;
      for (const auto& [backend, passed] : passed_) most = (std::max)(most, passed);
      if (most < kFewest)
        Fail("the corpus",
             opkit::StrCat("passes ", most, " cases on a backend, expected at least ", kFewest));
    }
    return Summarize();
  }

 private:
  // Lines `case: reason`.
  void ReadList() {
    if (options_.update && !std::ifstream(options_.list)) return;  // a new one
    std::istringstream lines(ReadFile(options_.list));
    for (std::string line; std::getline(lines, line);) {
      if (line.empty() || line[0] == '#') continue;
      const size_t colon = line.find(": ");
      if (colon == std::string::npos ||
          !list_.emplace(line.substr(0, colon), line.substr(colon + 2)).second)
        Fail(options_.list, "has the line '" + line + "', expected 'case: reason', each case once");
    }
  }
  void WriteList() const {
    std::map<std::string, std::string> skipped = skipped_;
    if (!options_.filters.empty())  // what was not looked at stays
      for (const auto& [name, reason] : list_)
        if (!seen_.contains(name)) skipped.emplace(name, reason);
    std::ofstream file(options_.list);
    file << "# The cases of the node corpus that cannot run, each with its reason: an operator or "
            "a type "
            "that is\n# not built. Written by `conformance_test --update`.\n";
    for (const auto& [name, reason] : skipped) file << name << ": " << reason << "\n";
    if (!file.flush()) opkit::Throw(opkit::ErrorCode::kNotFound, "cannot write ", options_.list);
  }
  Names Cases() const {
    Names out;
    DIR* folder = opendir(options_.cases.c_str());
    if (!folder)
      opkit::Throw(opkit::ErrorCode::kNotFound, "there is no folder ", options_.cases,
                   "; fetch the corpus with ./dev test, or say where it is with OPKIT_DATA_DIR");
    while (const dirent* entry = readdir(folder))
      if (entry->d_name[0] != '.' && IsWanted(entry->d_name)) out.push_back(entry->d_name);
    closedir(folder);
    std::sort(out.begin(), out.end());
    if (out.empty())
      opkit::Throw(opkit::ErrorCode::kNotFound, "no case of ", options_.cases, " is named ",
                   Join(options_.filters));
    return out;
  }
  bool IsWanted(const char* name) const {
    if (options_.filters.empty()) return true;
    return std::any_of(options_.filters.begin(), options_.filters.end(),
                       [&](const std::string& f) { return fnmatch(f.c_str(), name, 0) == 0; });
  }

  void Try(const std::string& name) {
    seen_.insert(name);
    if (options_.verbose) std::cout << name << std::endl;  // flushed: a crash shows where
    const std::string folder = options_.cases + "/" + name;
    const ModelFacts facts = FactsOf(ReadFile(folder + "/model.onnx"));
    const std::string reason = WhySkipped(facts);
    const auto listed = list_.find(name);
    if (reason.starts_with("operator")) return Skip(name, reason, "");
    if (NeedsBackend(facts, "re2") && !kernels_.contains(kRe2))
      std::cout << name << " does not run in this program: it needs opkit::re2\n";
    for (const Backend& backend : backends_) {
      if (!backend.IsReference() && !Claims(backend, facts)) continue;
      if (NeedsBackend(facts, "re2") && backend != kRe2) continue;
      const Outcome outcome = CaseRun(folder, backend).Run();
      if (!outcome.failure.empty() && !reason.empty()) return Skip(name, reason, outcome.failure);
      if (backend.IsReference() && outcome.failure.empty() && listed != list_.end() &&
          !options_.update)
        Fail(name, "passes, but is listed as skipped (" + listed->second + "); " + kUpdate);
      if (!outcome.failure.empty())
        Fail(name + " (" + backend.Name() + ")", outcome.failure);
      else if (outcome.claimed)
        ++passed_[backend];
    }
  }
  void Skip(const std::string& name, const std::string& reason, const std::string& failure) {
    skipped_[name] = reason;
    if (options_.verbose && !failure.empty())
      std::cout << "  " << reason << "; " << failure << "\n";
    if (options_.update) return;
    const auto listed = list_.find(name);
    if (listed == list_.end())
      Fail(name, "cannot run (" + reason + (failure.empty() ? "" : "; " + failure) +
                     ") and is not listed; " + kUpdate);
    else if (listed->second != reason)
      Fail(name,
           "is listed as '" + listed->second + "', but the reason is '" + reason + "'; " + kUpdate);
  }
  bool Claims(const Backend& backend, const ModelFacts& facts) const {
    const auto& ops = kernels_.at(backend);
    return std::any_of(facts.operators.begin(), facts.operators.end(),
                       [&](const std::string& op) { return ops.contains(op); });
  }

  void Fail(const std::string& what, const std::string& why) {
    ++failed_;
    std::cout << "FAILED: " << what << ": " << why << "\n";
  }
  int Summarize() const {
    std::map<std::string, int> reasons;
    for (const auto& [name, reason] : skipped_) ++reasons[reason.substr(0, reason.find(':'))];
    std::cout << seen_.size() << " cases:";
    for (const Backend& backend : backends_) {
      const auto found = passed_.find(backend);
      std::cout << " " << (found == passed_.end() ? 0 : found->second) << " pass on "
                << backend.Name() << ",";
    }
    std::cout << " " << skipped_.size() << " skipped";
    const char* separator = " (";
    for (const auto& [reason, count] : reasons) {
      std::cout << separator << reason << " " << count;
      separator = ", ";
    }
    std::cout << (reasons.empty() ? "" : ")") << ", " << failed_ << " failures\n";
    return failed_ ? 1 : 0;
  }

  inline static const Backend kRe2{opkit::DeviceType::kCPU, "re2"};
  static constexpr const char* kUpdate = "run conformance_test --update";

  Options options_;
  std::map<std::string, std::string> list_, skipped_;  // reasons by case
  std::map<Backend, int> passed_;
  std::set<std::string> seen_;
  const std::map<Backend, std::set<std::string>> kernels_ = OperatorsByBackend();
  const std::vector<Backend> backends_ = BackendsOfModels();
  int failed_ = 0;
};

Options ParseArguments(int argc, char** argv) {
  Options options;
  const char* data = std::getenv("OPKIT_DATA_DIR");
  options.cases =
      std::string(data ? data : OPKIT_DATA_FOLDER) + "/onnx-1.22.0/onnx/backend/test/data/node";
  options.list = OPKIT_CONFORMANCE_LIST;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--update")
      options.update = true;
    else if (argument == "--verbose")
      options.verbose = true;
    else if (argument.starts_with("--list="))
      options.list = argument.substr(std::strlen("--list="));
    else if (argument.starts_with("-"))
      opkit::Throw(opkit::ErrorCode::kInvalidArgument, "there is no option ", argument);
    else
      options.filters.push_back(argument);
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Conformance(ParseArguments(argc, argv)).Run();
  } catch (const std::exception& error) {
    std::cerr << "conformance_test: " << error.what() << "\n";
    return 1;
  }
}
