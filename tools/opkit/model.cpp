#include "model.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <csignal>
#include <set>

#include "library.hpp"
#include "npy.hpp"
#include "opkit/core/sequence.hpp"
#include "opkit/device/copy.hpp"
#include "opkit/engine/thread_pool.hpp"
#include "opkit/graph/passes/pass_rules.hpp"
#include "opkit/graph/plan/plan_state.hpp"
#include "opkit/graph/tune/plan_tuning.hpp"
#include "opkit/interop/mapped_file.hpp"
#include "opkit/interop/onnx.hpp"
#include "opkit/op/kernel_candidates.hpp"
#include "opkit/op/random.hpp"
#include "options.hpp"
#include "terminal.hpp"

namespace cli {
namespace {

using namespace opkit;

ExitCode CodeOf(const Error& error, ExitCode otherwise) {
  return error.code() == ErrorCode::kOutOfMemory ? ExitCode::kRunFailed : otherwise;
}

std::vector<std::string> InputNames(const Graph& graph) {
  std::vector<std::string> names;
  for (const Graph::Input& input : graph.inputs()) names.push_back(input.name);
  return names;
}
size_t FindInput(const Graph& graph, std::string_view name, bool fix_defaults) {
  for (size_t i = 0; i < graph.inputs().size(); ++i)
    if (graph.inputs()[i].name == name) return i;
  if (graph.FindConstant(name))
    throw Failure(
        ExitCode::kBadInput, StrCat("'", name, "' is a constant of the model, not an input"),
        fix_defaults ? "--fix-defaults makes constants of inputs that have a default" : "");
  throw Failure(ExitCode::kBadInput, StrCat("the model has no input '", name, "'",
                                            SuggestName(name, InputNames(graph))));
}

// Splits "name=value"; the name of an input may contain '='.
struct Setting {
  size_t input;
  std::string value;
};
Setting Split(const Graph& graph, const std::string& text, const char* option, bool fix_defaults) {
  size_t at = text.find('=');
  if (at == std::string::npos)
    throw Failure(ExitCode::kUsage, StrCat("expected ", option, ", found '", text, "'"));
  for (const std::string& name : InputNames(graph))
    if (name.size() > at && text.starts_with(name + "=")) at = name.size();
  return {FindInput(graph, text.substr(0, at), fix_defaults), text.substr(at + 1)};
}

bool HoldsTensors(DType dtype) { return dtype == DType::kSequence || dtype == DType::kOptional; }

// Reads the files "a.npy,b.npy" as a sequence or an optional value of this type. No file is an
// empty sequence or an absent value.
Tensor ReadElements(const std::string& files, const TensorInfo& info) {
  std::vector<Tensor> elements;
  for (size_t at = 0; at < files.size();) {
    const size_t end = std::min(files.find(',', at), files.size());
    elements.push_back(ReadNpy(files.substr(at, end - at)));
    at = end + 1;
  }
  if (info.dtype == DType::kSequence) return MakeSequence(elements);
  if (elements.empty()) return MakeOptional(std::nullopt);
  if (info.holds_sequence) return MakeOptional(MakeSequence(elements));
  if (elements.size() > 1)
    Throw(ErrorCode::kInvalidArgument, "an optional value is one file, found ", elements.size(),
          " files");
  return MakeOptional(elements[0]);
}

// Returns the call of NumPy that makes an array of this dtype.
std::string AsType(DType dtype) {
  return dtype == DType::kString ? ".astype(str)" : StrCat(".astype('", dtype, "')");
}

// Finds the tensor or the shape of each input.
class InputResolver {
 public:
  InputResolver(const Graph& graph, const ModelOptions& options)
      : graph_(graph),
        fix_defaults_(options.fix_defaults),
        tensors_(graph.inputs().size()),
        shapes_(tensors_.size()) {
    for (const std::string& text : options.inputs) Read(text);
    for (const std::string& text : options.shapes) {
      const Setting setting = Split(graph, text, "--shape NAME=1x3x48x320", fix_defaults_);
      const Graph::Input& input = graph.inputs()[setting.input];
      if (shapes_[setting.input])
        throw Failure(ExitCode::kUsage, "the shape of input '" + input.name + "' is given twice");
      const Shape shape = ParseShape(setting.value);
      Bind(setting.input, shape, StrCat("--shape gives ", shape));
    }
  }

  bool has_tensor(size_t i) const { return tensors_[i].initialized(); }
  // True if the run reads the model's default, which no option replaces.
  bool has_default(size_t i) const {
    return !has_tensor(i) && !shapes_[i] && graph_.inputs()[i].has_default();
  }
  const Tensor& tensor(size_t i) const { return tensors_[i]; }
  // Returns the input with unknown extents left open, as in the model.
  Graph::Input Known(size_t i) const {
    Graph::Input out = graph_.inputs()[i];
    if (has_default(i)) {
      out.info.shape = out.default_value.shape();
    } else if (shapes_[i]) {
      out.info.shape = *shapes_[i];
    } else if (out.info.shape.has_rank()) {
      std::vector<Dim> dims = out.info.shape.dims();
      for (Dim& dim : dims)
        if (const Binding* known = dim.is_symbol() ? Find(dim.symbol()) : nullptr)
          dim = Dim(known->extent);
      out.info.shape = SymbolicShape(std::move(dims));
    }
    return out;
  }
  // Returns the input with 1 for each unknown extent.
  Graph::Input Resolve(size_t i) const {
    const Graph::Input& input = graph_.inputs()[i];
    if (HoldsTensors(input.info.dtype)) return input;  // a run decides how many elements it has
    if (has_tensor(i)) return {input.name, TensorInfo(tensor(i).dtype(), tensor(i).shape())};
    if (has_default(i)) return {input.name, TensorInfo::Of(input.default_value)};
    if (input.info.dtype == DType::kUndefined)
      throw Failure(ExitCode::kBadModel,
                    "the model gives no dtype for its input '" + input.name + "'");
    Graph::Input out{input.name, TensorInfo(input.info.dtype, {})};
    if (shapes_[i]) {
      out.info.shape = *shapes_[i];
      return out;
    }
    if (!input.info.shape.has_rank())
      throw Failure(ExitCode::kBadInput,
                    "the model gives no rank for its input '" + input.name + "'",
                    "give --shape " + input.name + "=1x3x48x320");
    std::vector<Dim> dims;
    for (const Dim& dim : input.info.shape.dims()) dims.push_back(ExtentOf(dim));
    out.info.shape = SymbolicShape(std::move(dims));
    return out;
  }

 private:
  struct Binding {
    std::string symbol;
    int64_t extent;
    std::string where;
  };

  void Read(const std::string& text) {
    const Setting setting = Split(graph_, text, "--input NAME=FILE.npy", fix_defaults_);
    const Graph::Input& input = graph_.inputs()[setting.input];
    if (has_tensor(setting.input))
      throw Failure(ExitCode::kUsage, "input '" + input.name + "' is given twice");
    if (HoldsTensors(input.info.dtype)) return ReadSeveral(setting);
    const bool is_shape = !setting.value.empty() &&
                          setting.value.find_first_not_of("0123456789x") == std::string::npos;
    const Tensor tensor = FailWith(ExitCode::kBadFile,
                                   is_shape ? "a shape is --shape " + text + ", with --random" : "",
                                   [&] { return ReadNpy(setting.value); });
    const std::string found = StrCat(setting.value, " holds ", tensor.dtype(), tensor.shape());
    if (input.info.dtype != DType::kUndefined && input.info.dtype != tensor.dtype())
      throw Failure(ExitCode::kBadInput,
                    StrCat("input '", input.name, "' is ", ToString(input.info), ", but ", found),
                    "convert it, in Python with " + AsType(input.info.dtype));
    Bind(setting.input, tensor.shape(), found);
    tensors_[setting.input] = tensor;
  }
  void ReadSeveral(const Setting& setting) {
    const Graph::Input& input = graph_.inputs()[setting.input];
    const Tensor value =
        FailWith(ExitCode::kBadFile, "", [&] { return ReadElements(setting.value, input.info); });
    const TensorInfo found = TensorInfo::Of(value);
    if (input.info.element != DType::kUndefined && found.element != DType::kUndefined &&
        input.info.element != found.element)
      throw Failure(ExitCode::kBadInput,
                    StrCat("input '", input.name, "' is ", ToString(input.info),
                           ", but the files are ", ToString(found)),
                    "convert them, in Python with " + AsType(input.info.element));
    Bind(setting.input, value.shape(), StrCat("the files are ", ToString(found)));
    tensors_[setting.input] = value;
  }
  void Bind(size_t i, const Shape& shape, const std::string& where) {
    const Graph::Input& input = graph_.inputs()[i];
    const SymbolicShape& declared = input.info.shape;
    bool fits = !declared.has_rank() || declared.rank() == shape.rank();
    std::string why;
    for (int axis = 0; fits && declared.has_rank() && axis < shape.rank(); ++axis) {
      const Dim& dim = declared[axis];
      fits = !dim.is_known() || dim.value() == shape[axis];
      if (!dim.is_symbol()) continue;
      const Binding* known = Find(dim.symbol());
      if (!known) {
        bindings_.push_back({dim.symbol(), shape[axis], input.name});
      } else if (known->extent != shape[axis]) {
        fits = false;
        why = StrCat(", and ", dim.symbol(), " is ", known->extent, " in '", known->where, "'");
      }
    }
    if (!fits)
      throw Failure(ExitCode::kBadInput, StrCat("input '", input.name, "' is ",
                                                ToString(input.info), why, ", but ", where));
    shapes_[i] = shape;
  }
  const Binding* Find(const std::string& symbol) const {
    for (const Binding& binding : bindings_)
      if (binding.symbol == symbol) return &binding;
    return nullptr;
  }
  int64_t ExtentOf(const Dim& dim) const {
    if (dim.is_known()) return dim.value();
    const Binding* known = dim.is_symbol() ? Find(dim.symbol()) : nullptr;
    return known ? known->extent : 1;
  }

  const Graph& graph_;
  const bool fix_defaults_;
  std::vector<Tensor> tensors_;
  std::vector<std::optional<Shape>> shapes_;
  std::vector<Binding> bindings_;
};

// Returns a word of two to five small letters.
std::string RandomWord(RandomGenerator& random) {
  std::string word(static_cast<size_t>(2 + 4 * random.uniform()), 'a');
  for (char& letter : word)
    letter = static_cast<char>('a' + static_cast<int>(26 * random.uniform()));
  return word;
}

Tensor RandomTensor(const TensorInfo& info, RandomGenerator& random) {
  if (HoldsTensors(info.dtype))
    Throw(ErrorCode::kUnsupported, "--random makes no ", ToString(info),
          ", because the model does not say which shapes are in it; give --input NAME=a.npy,b.npy");
  Tensor out(info.shape.ToShape(), info.dtype);
  if (info.dtype == DType::kString) {
    auto* words = out.mutable_data<std::string>();
    std::generate(words, words + out.numel(), [&] { return RandomWord(random); });
    return out;
  }
  DispatchDType<bool, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t,
                float16, bfloat16, float, double>(info.dtype, [&]<class T>() {
    T* data = out.mutable_data<T>();
    for (int64_t i = 0; i < out.numel(); ++i) {
      const double uniform = random.uniform();
      if constexpr (std::is_integral_v<T>)
        data[i] = static_cast<T>(uniform >= 0.5);
      else
        data[i] = static_cast<T>(static_cast<float>(uniform));
    }
  });
  return out;
}

bool IsAllowed(const std::string& backend, const ModelOptions& options) {
  for (const std::string& allowed : options.backends)
    if (allowed == backend) return true;
  return false;
}

// Returns why no given backend has a kernel that takes the node.
std::string WhyNone(const OperatorDef& def, const GraphView& view, const GraphTypes& types,
                    int node, const ModelOptions& options) {
  std::string out;
  const auto ins = types.Of(view.inputs(node)), outs = types.Of(view.outputs(node));
  for (const KernelCandidate& candidate : KernelCandidates(def, ins, outs))
    if (IsAllowed(candidate.kernel->backend, options) && !candidate.dropped.empty())
      out += ", " + candidate.name() + ": " + candidate.dropped;
  return out;
}

// Throws if the selection fell back to a backend that was not given. Does not check the branches of
// a node of type If, because their kernels are chosen when they run. The node itself has a kernel
// of the reference backend only; that backend has a kernel of every operator.
void CheckBackends(const Plan& plan, const ModelOptions& options) {
  const GraphView& view = plan.view();
  for (int node = 0; node < view.num_nodes(); ++node) {
    const std::string& backend = plan.choice(node).kernel->backend;
    if (IsAllowed(backend, options)) continue;
    const OperatorDef& def = plan.graph().node(node);
    throw Failure(
        ExitCode::kBadModel,
        StrCat("node ", ToString(def), " has no kernel of the backends ", options.backends,
               " that takes it", WhyNone(def, view, plan.types(), node, options)),
        "add '" + backend + "' to --backends");
  }
}

void CollectUnknown(const Graph& graph, std::set<std::string>* types) {
  for (const OperatorDef& def : graph.nodes()) {
    if (!OpRegistry::Global().FindSchema(def.type()) &&
        !opkit::detail::IsOnnxTypeReplaced(def.type()))
      types->insert(def.type());
    for (const auto& item : def.subgraphs())
      if (const Graph* inner = GraphOf(*item.graph)) CollectUnknown(*inner, types);
  }
}
// Reads the file with unknown operators allowed. Returns the reader's error, or an empty text.
std::string WrongBesideOperators(const std::string& path, std::set<std::string>* types) {
  try {
    CollectUnknown(LoadOnnx(path, {.allow_unknown_operators = true}), types);
    return {};
  } catch (const Error& error) {
    return Describe(error);
  }
}
// Returns the text without the advice to set an option that only a C++ program has.
std::string WithoutOptions(std::string what) {
  const size_t from = what.find("; if it is the standard operator ");
  constexpr std::string_view kOption = "OnnxOptions::standard_operators_in_any_domain";
  const size_t to = what.find(kOption, from);
  return to == std::string::npos ? what : what.erase(from, to + kOption.size() - from);
}
// Returns "; unknown operators: A, B", since the reader names only the first operator. Returns an
// empty text for a single operator.
std::string AllUnknown(const std::set<std::string>& types) {
  if (types.size() < 2) return {};
  return StrCat("; unknown operators: ", std::vector<std::string>(types.begin(), types.end()));
}

// True if the graph is valid for some inputs and invalid for these. A kernel that refuses its node
// proves nothing, because it may refuse the attributes.
bool AreInputsWrong(const Graph& graph, const std::vector<Graph::Input>& inputs) {
  try {
    const GraphView view(graph);
    InferGraph(view);
    try {
      InferGraph(view, inputs);
    } catch (const Error&) {
      return true;
    }
  } catch (const Error&) {  // the graph is invalid for all inputs
  }
  return false;
}

// Sets an argument to the numbers of "[1,2]". Returns false for other text.
template <class T>
bool SetList(Arguments& out, const std::string& name, std::string_view text) {
  if (!text.starts_with('[') || !text.ends_with(']')) return false;
  text = text.substr(1, text.size() - 2);
  std::vector<T> numbers;
  for (size_t at = 0; !text.empty() && at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const auto number = opkit::detail::ParseText<T>(text.substr(at, end - at));
    if (!number) return false;
    numbers.push_back(*number);
    at = end + 1;
  }
  out.Set(name, std::move(numbers));
  return true;
}

bool HasKernels(DeviceType type) {
  return std::ranges::any_of(RegisteredOperators(), [&](const std::string& op) {
    return !OpRegistry::Global().FindKernels(op, type).empty();
  });
}

// Reads "cuda" or "cuda:1". Throws a Failure for other text, and for a device that this program or
// this machine lacks.
Device ParseDevice(const std::string& text) {
  const std::string name = text.substr(0, text.find(':'));
  const int type = FindDeviceType(name);
  const auto index = name == text ? std::optional<int>(0)
                                  : opkit::detail::ParseText<int>(text.substr(name.size() + 1));
  if (type < 0 || !index || *index < 0)
    throw Failure(ExitCode::kUsage,
                  "expected --device TYPE or TYPE:NUMBER, such as cuda:1, found '" + text + "'");
  const Device device{static_cast<DeviceType>(type), *index};
  if (!HasKernels(device.type))
    throw Failure(
        ExitCode::kUsage, "this program has no kernels for " + ToString(device.type),
        device.type == DeviceType::kCUDA
            ? "build it with nvcc on the PATH and -DOPKIT_CLI_CUDA=ON, which adds those of CUDA"
            : "");
  if (const std::string why = WhyNoDevice(device); !why.empty())
    throw Failure(ExitCode::kRunFailed, "--device " + text + ": " + why);
  return device;
}

}  // namespace

Shape ParseShape(const std::string& text) {
  std::vector<int64_t> extents;
  for (size_t at = 0; !text.empty() && at <= text.size();) {
    const size_t end = std::min(text.find_first_of("x,", at), text.size());
    const auto [stop, error] =
        std::from_chars(text.data() + at, text.data() + end, extents.emplace_back());
    if (error != std::errc() || stop != text.data() + end || extents.back() < 0)
      throw Failure(ExitCode::kUsage,
                    StrCat("expected a shape such as 1x3x48x320, found '", text, "'"));
    at = end + 1;
  }
  return FailWith(ExitCode::kUsage, "", [&] { return Shape(extents); });
}

Arguments ParseAttributes(const std::vector<std::string>& settings) {
  Arguments out;
  for (const std::string& text : settings) {
    const auto [name, value] = SplitSetting("--attr", text);
    if (SetList<int64_t>(out, name, value) || SetList<double>(out, name, value)) continue;
    if (const auto whole = opkit::detail::ParseText<int64_t>(value))
      out.Set(name, *whole);
    else if (const auto number = opkit::detail::ParseText<double>(value))
      out.Set(name, *number);
    else if (value == "true" || value == "false")
      out.Set(name, value == "true");
    else
      out.Set(name, value);
  }
  return out;
}

void AddModelOptions(CLI::App& app, ModelOptions* options) {
  app.add_option("MODEL", options->path, "An ONNX file")->option_text("REQUIRED");
  app.add_option(
         "--shape", options->shapes,
         "Sets the shape of an input where the model leaves extents open (default: 1 for each)")
      ->option_text("NAME=1x3x48x320 ...");
  app.add_option("--backends", options->backends,
                 "Uses kernels of these backends only, in this order of preference; nodes in the "
                 "branches of an If are not checked")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->option_text("NAME,...");
  app.add_option(
         "--selection", options->selection,
         "Uses the kernels that this file names; opkit run --save-selection writes such a file")
      ->option_text("FILE");
  AddLibraryOption(app, &options->libraries);
  app.add_option("--threads", options->threads,
                 "Sets the number of threads (default: one for each CPU)")
      ->check(WholeNumber(1, ThreadPool::kMaxThreads))
      ->option_text("N");
  app.add_flag("--fix-defaults", options->fix_defaults,
               "Makes constants of the inputs that have a default in the model; weights that are "
               "listed as inputs then get the faster kernels for constant weights");
  app.add_flag("--zipmap-columns", options->zipmap_columns,
               "Makes an output NAME.LABEL of each column of a ZipMap, in place of one output NAME "
               "that is a matrix of the scores");
  app.add_flag("--flush-denormals", options->flush_denormals,
               "Takes denormal numbers (below 1.2e-38) as zeros, since many CPUs compute with them "
               "a hundred times slower");
  AddPartitionOptions(app, &options->partition);
}

void AddDeviceOption(CLI::App& app, ModelOptions* options) {
  app.add_option("--device", options->device,
                 "Runs nodes on this device, such as cuda or cuda:1, and nodes without a kernel "
                 "for it on the CPU")
      ->option_text("TYPE[:NUMBER]");
}

void AddTunedOptions(CLI::App& app, ModelOptions* options) {
  app.add_flag("--tuned", options->tuned,
               "Uses the kernels that were measured fastest for this model, these shapes and this "
               "number of threads; measures them first if the tuning cache has none");
  app.add_option("--tuning-cache", options->tuning_cache,
                 "Names the tuning cache (default: $OPKIT_TUNING_CACHE, else opkit/tuning.json in "
                 "the user's cache folder)")
      ->option_text("FILE");
  app.add_option("--tuning-budget", options->tuning_seconds,
                 "Limits the time that --tuned measures")
      ->check(Seconds())
      ->option_text("S=20");
}

void AddInputOptions(CLI::App& app, ModelOptions* options) {
  app.add_option("--input", options->inputs,
                 "Reads the value of an input from a NumPy file, that of a sequence from "
                 "NAME=FILE.npy,FILE.npy; an input with a default in the model may be left out")
      ->option_text("NAME=FILE.npy ...");
  app.add_option("--seed", options->seed, "Sets the seed of the random inputs")
      ->check(WholeNumber(0))
      ->option_text("N=0");
}

OnnxModel LoadModel(ModelOptions& options) {
  // In `--input x=x.npy model.onnx`, CLI11 adds the model's path to the list of inputs.
  for (auto* list : {&options.inputs, &options.shapes})
    if (options.path.empty() && !list->empty() && list->back().find('=') == std::string::npos) {
      options.path = list->back();
      list->pop_back();
    }
  if (options.path.empty())
    throw Failure(ExitCode::kUsage, "expected the file of a model", "see the command's --help");
  FailWith(ExitCode::kUsage, "", [&] {  // environment variables may be invalid
    if (options.threads > 0) SetNumThreads(options.threads);
    return NumThreads();
  });
  LoadLibraries(options.libraries);
  CheckPartitioners(options.partition);
  PreferBackends(options.backends, "--backends");
  if (!options.device.empty())
    OpRegistry::Global().SetPreference(ParseDevice(options.device).type, options.backends);
  FailWith(ExitCode::kBadFile, "", [&] { return MapFile(options.path); });
  try {
    OnnxModel model = LoadOnnxModel(
        options.path, {.allow_unknown_operators = !options.partition.partitioners.empty(),
                       .fix_defaults = options.fix_defaults,
                       .zipmap_columns = options.zipmap_columns});
    for (const std::string& warning : model.warnings)
      std::fprintf(stderr, "opkit: %s\n", Printable(warning).c_str());
    return model;
  } catch (const Error& error) {
    const std::string what = Describe(error);
    const bool missing = error.code() == ErrorCode::kNotFound || error.code() == ErrorCode::kIo;
    if (!missing && error.code() != ErrorCode::kUnsupported)
      throw Failure(CodeOf(error, ExitCode::kBadFile), what);
    std::set<std::string> types;
    // A value or a file of weights is missing, not an operator.
    if (WrongBesideOperators(options.path, &types) == what && missing)
      throw Failure(ExitCode::kBadFile, what,
                    "the file is damaged or incomplete; onnx.checker gives details");
    throw Failure(ExitCode::kBadModel, WithoutOptions(what) + AllUnknown(types),
                  "'opkit ops' lists the operators, --library FILE.so adds those of a library");
  }
}

void PreferBackends(const std::vector<std::string>& backends, const std::string& option) {
  FailWith(ExitCode::kUsage, "", [&] {
    const detail::BackendPreference& allowed = detail::AllowedBackends();
    for (const std::string& backend : allowed)
      if (const std::string why = OpRegistry::Global().WhyNoBackend(backend); !why.empty())
        Throw(ErrorCode::kNotFound, "the environment variable OPKIT_BACKENDS: ", why);
    for (const std::string& backend : backends) {
      OpRegistry::Global().CheckBackend(backend);
      if (!allowed.empty() && std::ranges::count(allowed, backend) == 0)
        Throw(ErrorCode::kInvalidArgument, option, " names '", backend,
              "', which the environment variable OPKIT_BACKENDS does not allow");
    }
    OpRegistry::Global().SetPreference(DeviceType::kCPU, backends);
  });
}

Tensor OnHost(const Tensor& tensor) {
  if (IsHostAccessible(tensor.device().type)) return tensor;
  Tensor host;
  Copy(tensor, &host);
  return host;
}

std::vector<NamedTensor> MakeInputs(const Graph& graph, const ModelOptions& options, bool random) {
  const InputResolver resolver(graph, options);
  RandomGenerator generator(options.seed);
  std::vector<NamedTensor> out;
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const Graph::Input& input = graph.inputs()[i];
    if (resolver.has_tensor(i)) {
      out.push_back({input.name, resolver.tensor(i)});
      continue;
    }
    if (resolver.has_default(i)) {
      out.push_back({input.name, input.default_value});
      continue;
    }
    if (!random)
      throw Failure(
          ExitCode::kBadInput,
          StrCat("input '", input.name, "', which is ", ToString(input.info), ", has no value"),
          "give --input " + input.name + "=FILE.npy, or --random");
    const TensorInfo info = resolver.Resolve(i).info;
    try {
      out.push_back({input.name, RandomTensor(info, generator)});
    } catch (const Error& error) {
      throw Failure(CodeOf(error, ExitCode::kBadInput),
                    StrCat("input '", input.name, "': ", Describe(error)));
    }
  }
  return out;
}

std::vector<Graph::Input> ChooseShapes(const Graph& graph, const ModelOptions& options) {
  const InputResolver resolver(graph, options);
  std::vector<Graph::Input> out;
  for (size_t i = 0; i < graph.inputs().size(); ++i) out.push_back(resolver.Resolve(i));
  return out;
}
std::vector<Graph::Input> KnownShapes(const Graph& graph, const ModelOptions& options) {
  const InputResolver resolver(graph, options);
  std::vector<Graph::Input> out;
  for (size_t i = 0; i < graph.inputs().size(); ++i) out.push_back(resolver.Known(i));
  return out;
}
std::vector<Graph::Input> ShapesOf(const Graph& graph, const std::vector<NamedTensor>& inputs) {
  std::vector<Graph::Input> out;
  for (const NamedTensor& input : inputs)
    if (!HoldsTensors(input.tensor.dtype()))
      out.push_back({input.name, TensorInfo(input.tensor.dtype(), input.tensor.shape())});
    else if (const Graph::Input* declared = graph.FindInput(input.name))
      out.push_back({input.name, declared->info});  // a run decides how many elements it has
  return out;
}

Graph WithShapes(const Graph& graph, const std::vector<Graph::Input>& inputs) {
  std::vector<Graph::Input> shaped = inputs;
  for (Graph::Input& input : shaped)
    if (const Graph::Input* own = graph.FindInput(input.name);
        own && own->has_default() &&
        SymbolicShape::Merge(input.info.shape, own->default_value.shape()))
      input.default_value = own->default_value;
  return opkit::detail::WithInputs(graph, shaped);
}

PlanOptions PlanOptionsOf(const ModelOptions& options) {
  PlanOptions plan;
  plan.partitioners = RequestsOf(options.partition);
  plan.memory.release_constants = options.release_constants;
  plan.schedule.flush_denormals = options.flush_denormals;
  if (!options.device.empty()) plan.devices = {ParseDevice(options.device), Device()};
  if (options.tuned) {
    plan.tuning.use = PlanOptions::TuningOptions::Use::kCached;
    plan.tuning.cache = options.tuning_cache;
  }
  if (!options.selection.empty())
    plan.selection.forced = FailWith(ExitCode::kBadFile, "it is in " + options.selection, [&] {
      const Storage file = MapFile(options.selection);
      return ParseSelection(BytesOf(file));
    });
  return plan;
}

void ThrowRefused(const Error& error, const Graph& graph, const std::vector<Graph::Input>& inputs) {
  if (!AreInputsWrong(graph, inputs))
    throw Failure(CodeOf(error, ExitCode::kBadModel), Describe(error));
  std::string shapes;
  for (const Graph::Input& input : inputs)
    shapes += StrCat(shapes.empty() ? "" : ", ", input.name, " ", ToString(input.info));
  throw Failure(CodeOf(error, ExitCode::kBadInput), Describe(error) + "; with the inputs " + shapes,
                "give shapes with --shape or --input; without them every open extent is 1");
}

Plan MakePlan(const Graph& graph, const std::vector<Graph::Input>& inputs,
              const ModelOptions& options) {
  try {
    PlanOptions plan_options = PlanOptionsOf(options);
    // Another run may give a sequence of another length, so the plan keeps its constants.
    for (const Graph::Input& input : inputs)
      plan_options.memory.release_constants &= input.info.shape.is_known();
    const Plan plan = Compile(WithShapes(graph, inputs), plan_options);
    if (!options.backends.empty() && plan.has_shapes()) CheckBackends(plan, options);
    return plan;
  } catch (const Error& error) {
    ThrowRefused(error, graph, inputs);
  }
}

void WarnOf(const TuningCache& cache) {
  for (const std::string& warning : cache.warnings())
    std::fprintf(stderr, "opkit: %s\n", Printable(warning).c_str());
}

namespace {

volatile std::sig_atomic_t g_interrupted = 0;

// While it exists, Ctrl-C ends the tuning. A second Ctrl-C ends the program.
class InterruptScope {
 public:
  InterruptScope()
      : before_(std::signal(SIGINT, [](int) {
          g_interrupted = 1;
          std::signal(SIGINT, SIG_DFL);
        })) {}
  InterruptScope(const InterruptScope&) = delete;
  ~InterruptScope() { std::signal(SIGINT, before_); }

 private:
  void (*before_)(int);
};

}  // namespace

TuneResult TuneWithProgress(const Graph& graph, TuneOptions options) {
  Progress bar("tuning", static_cast<int64_t>(options.seconds * 1000));
  options.progress = [&](const TuneProgress& progress) {
    bar.Update(static_cast<int64_t>(progress.seconds * 1000),
               StrCat(progress.stage, ", ", Counted(static_cast<size_t>(progress.plans), "plan"),
                      ", best ", Fixed(progress.speedup, 2), " times the default's speed"));
    return g_interrupted == 0;
  };
  const InterruptScope scope;
  TuneResult result = Tune(graph, options);
  if (options.cache) {
    options.cache->Save();
    WarnOf(*options.cache);
  }
  return result;
}

Plan MakePlan(const Graph& graph, const std::vector<NamedTensor>& inputs,
              const ModelOptions& options) {
  const std::vector<Graph::Input> shapes = ShapesOf(graph, inputs);
  const Plan plan = MakePlan(graph, shapes, options);
  if (!options.tuned || plan.state()->is_tuned()) return plan;
  TuneOptions tune;
  tune.plan = PlanOptionsOf(options);
  tune.plan.tuning = {};
  tune.plan.memory.release_constants = false;
  tune.inputs = inputs;
  tune.seconds = options.tuning_seconds;
  tune.cache = &opkit::detail::SharedTuningCache(options.tuning_cache);
  std::fprintf(stderr, "opkit: the tuning cache %s has no plan of this model; measuring\n",
               Printable(tune.cache->path()).c_str());
  TuneWithProgress(WithShapes(graph, shapes), std::move(tune));
  return MakePlan(graph, shapes, options);
}

}  // namespace cli
