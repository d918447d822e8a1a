// Makes a plan of a model's file and the inputs on the command line, for run, bench and the other
// commands with a model. Each mistake is a Failure with its exit code.
#ifndef OPKIT_TOOLS_OPKIT_MODEL_HPP_
#define OPKIT_TOOLS_OPKIT_MODEL_HPP_

#include <string>
#include <vector>

#include "opkit/graph/executor.hpp"
#include "opkit/graph/partition/report.hpp"
#include "opkit/graph/tune/tune.hpp"
#include "opkit/interop/onnx/options.hpp"
#include "partition.hpp"
#include "program.hpp"

namespace cli {

struct ModelOptions {
  std::string path;
  std::vector<std::string> libraries;  // loaded before the model is read
  std::vector<std::string> inputs;     // name=file.npy; name=a.npy,b.npy
  std::vector<std::string> shapes;     // name=1x3x48x320
  std::vector<std::string> backends;   // in the order of preference; empty: all
  std::string device;                  // "cuda:1", preferred to the CPU; empty: the CPU
  std::string selection;               // a file of kernels that nodes must have
  bool tuned = false;                  // kernels by measurement, from the tuning cache
  std::string tuning_cache;            // a file; empty: TuningCache::DefaultPath()
  double tuning_seconds = 20;          // that --tuned may measure
  int threads = 0;                     // 0: as many as there are CPUs
  uint64_t seed = 0;                   // seed of random inputs
  bool fix_defaults = false;           // see OnnxOptions
  bool zipmap_columns = false;         // see OnnxOptions
  bool flush_denormals = false;        // see PlanOptions::ScheduleOptions
  bool release_constants = false;  // see PlanOptions::MemoryOptions; for a model with a single plan
  PartitionOptions partition;
};

// Reads "2x3" or "2,3". Throws a Failure (kUsage) for other text.
opkit::Shape ParseShape(const std::string& text);
// Reads the values NAME=VALUE of --attr: a whole number, a number, true or false, else text. Throws
// a Failure (kUsage) for other text.
opkit::Arguments ParseAttributes(const std::vector<std::string>& settings);

// Adds MODEL, --shape, --backends, --selection, --library, --threads, --fix-defaults,
// --flush-denormals, --partition, --option.
void AddModelOptions(CLI::App& app, ModelOptions* options);
// Adds --device, for commands that run or show one plan.
void AddDeviceOption(CLI::App& app, ModelOptions* options);
// Adds --tuned, --tuning-cache and --tuning-budget.
void AddTunedOptions(CLI::App& app, ModelOptions* options);
// Adds --input and --seed, for commands that run the model.
void AddInputOptions(CLI::App& app, ModelOptions* options);

// Loads the libraries, sets threads and backends for the process, and reads the file. Prints the
// model's warnings on stderr.
opkit::OnnxModel LoadModel(ModelOptions& options);
// Makes later plans prefer these backends. Throws a Failure (kUsage) that names `option` for an
// unknown or forbidden backend.
void PreferBackends(const std::vector<std::string>& backends, const std::string& option);

// Returns the tensor, or its copy in the host's memory.
opkit::Tensor OnHost(const opkit::Tensor& tensor);

// Returns a tensor for each input: that of --input, checked against the model, its default, or a
// random one (numbers in [0, 1), integers 0 or 1, short words) if `random`. Open extents come from
// --shape, from the same symbol in another input, or are 1.
std::vector<opkit::NamedTensor> MakeInputs(const opkit::Graph& graph, const ModelOptions& options,
                                           bool random);
// Returns the dtypes and shapes that MakeInputs would choose.
std::vector<opkit::Graph::Input> ChooseShapes(const opkit::Graph& graph,
                                              const ModelOptions& options);
// Returns the same as ChooseShapes, but with unknown extents left open, as in the model.
std::vector<opkit::Graph::Input> KnownShapes(const opkit::Graph& graph,
                                             const ModelOptions& options);
std::vector<opkit::Graph::Input> ShapesOf(const opkit::Graph& graph,
                                          const std::vector<opkit::NamedTensor>& inputs);

// Returns the graph with these inputs in place of its own; those that still fit keep their
// defaults.
opkit::Graph WithShapes(const opkit::Graph& graph, const std::vector<opkit::Graph::Input>& inputs);
// Returns the options of the plan of a model.
opkit::PlanOptions PlanOptionsOf(const ModelOptions& options);
// Throws the Failure for a graph that was refused with inputs of these shapes.
[[noreturn]] void ThrowRefused(const opkit::Error& error, const opkit::Graph& graph,
                               const std::vector<opkit::Graph::Input>& inputs);
// Returns the plan for inputs of these shapes with all nodes on the given backends, which are
// checked only if all shapes are known.
opkit::Plan MakePlan(const opkit::Graph& graph, const std::vector<opkit::Graph::Input>& inputs,
                     const ModelOptions& options);

// Does the same for these inputs. With --tuned, measures what the tuning cache does not have.
opkit::Plan MakePlan(const opkit::Graph& graph, const std::vector<opkit::NamedTensor>& inputs,
                     const ModelOptions& options);

// Measures the kernels of a model, with a progress bar, and saves the cache. Ctrl-C ends the
// measurement, which keeps what it has.
opkit::TuneResult TuneWithProgress(const opkit::Graph& graph, opkit::TuneOptions options);
// Prints the warnings of a cache on stderr.
void WarnOf(const opkit::TuningCache& cache);

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_MODEL_HPP_
