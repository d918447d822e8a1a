// From a model's file and what the command line says of its inputs to a plan: what run, bench and
// inspect have in common. Everything that can be wrong is a Failure with its exit code.
#ifndef OPKIT_TOOLS_OPKIT_MODEL_HPP_
#define OPKIT_TOOLS_OPKIT_MODEL_HPP_

#include <string>
#include <vector>

#include "opkit/graph/executor.hpp"
#include "opkit/graph/partition/report.hpp"
#include "opkit/interop/onnx/options.hpp"
#include "partition.hpp"
#include "program.hpp"

namespace cli {

struct ModelOptions {
  std::string path;
  std::vector<std::string> libraries;  // loaded before the model is read
  std::vector<std::string> inputs;     // name=file.npy
  std::vector<std::string> shapes;     // name=1x3x48x320
  std::vector<std::string> backends;   // in the order of preference; empty: all
  std::string selection;               // a file of kernels that nodes must have
  int threads = 0;                     // 0: as many as there are CPUs
  uint64_t seed = 0;                   // of random inputs
  bool release_constants = false;      // as PlanOptions says, for plans that are run alone
  PartitionOptions partition;
};

// "2x3" or "2,3". Failure (kUsage) for what is no shape.
opkit::Shape ParseShape(const std::string& text);

// MODEL, --shape, --backends, --selection, --library, --threads, --partition, --option.
void AddModelOptions(CLI::App& app, ModelOptions* options);
// --input and --seed, for commands that run the model.
void AddInputOptions(CLI::App& app, ModelOptions* options);

// Loads the libraries, sets threads and backends for the process, and reads the file.
opkit::OnnxModel LoadModel(ModelOptions& options);
// Has plans from now on prefer these backends; `option` names them in a Failure (kUsage) for one
// that is not there or not allowed.
void PreferBackends(const std::vector<std::string>& backends, const std::string& option);

// Tensors for the inputs: those of --input, checked against what the model says; the others random
// (numbers in [0, 1), integers 0 or 1) where `random` allows it. Extents that the model leaves open
// are those of --shape, those of the same symbol in another input, or else 1.
std::vector<opkit::NamedTensor> MakeInputs(const opkit::Graph& graph, const ModelOptions& options,
                                           bool random);
// The dtypes and shapes alone that MakeInputs would choose.
std::vector<opkit::GraphInput> ChooseShapes(const opkit::Graph& graph, const ModelOptions& options);
// The same, with what is not said left as open as it is in the model.
std::vector<opkit::GraphInput> KnownShapes(const opkit::Graph& graph, const ModelOptions& options);
std::vector<opkit::GraphInput> ShapesOf(const std::vector<opkit::NamedTensor>& inputs);

// The graph for inputs of these shapes alone.
opkit::Graph WithShapes(const opkit::Graph& graph, const std::vector<opkit::GraphInput>& inputs);
// The plan for inputs of these shapes, all nodes on the backends that were asked for; where shapes
// are open the backends are not checked. `report`, if given, is filled in with what partitioners
// took.
opkit::Plan MakePlan(const opkit::Graph& graph, const std::vector<opkit::GraphInput>& inputs,
                     const ModelOptions& options, opkit::PartitionReport* report = nullptr);

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_MODEL_HPP_
