// A library that hands parts of a graph to ONNX Runtime, whose shared object it opens when a graph
// is partitioned: that of the Python package onnxruntime, for instance.
//   g++ -std=c++20 -O2 -shared -fPIC -fno-gnu-unique -Iinclude examples/partition/onnxruntime_ep.cc -o libonnxruntime_ep.so
//   opkit run model.onnx --random --library libonnxruntime_ep.so --partition onnxruntime
//     --option ops=Conv,Gelu --option runtime=/usr/lib/libonnxruntime.so.1
// Its options: `ops`, the operators that it takes, without which it takes all; `runtime`, the
// shared object, without which it is that in the environment variable OPKIT_ONNXRUNTIME.
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <opkit/interop/onnx_writer.hpp>
#include <opkit/partition.hpp>
#include <opkit/plugin/author.hpp>

namespace {

using namespace opkit;  // NOLINT: as an author writes it

// ONNX Runtime's C API is a table of functions, which only grows at its end: the members here are
// those of its version 1, by their places in struct OrtApi (onnxruntime_c_api.h). Types of the API
// are only pointers here.
constexpr uint32_t kApiVersion = 1;
enum OrtMember {
  kGetErrorMessage = 2,
  kCreateEnv = 3,
  kCreateSessionFromArray = 8,
  kRun = 9,
  kCreateSessionOptions = 10,
  kSetIntraOpNumThreads = 24,
  kCreateTensorWithData = 49,
  kGetTensorMutableData = 51,
  kGetTensorElementType = 60,
  kGetDimensionsCount = 61,
  kGetDimensions = 62,
  kGetTensorTypeAndShape = 65,
  kCreateCpuMemoryInfo = 69,
  kReleaseEnv = 92,
  kReleaseStatus = 93,
  kReleaseMemoryInfo = 94,
  kReleaseSession = 95,
  kReleaseValue = 96,
  kReleaseTensorTypeAndShapeInfo = 99,
  kReleaseSessionOptions = 100,
};
struct OrtBase {
  void* const* (*get_api)(uint32_t version);
  const char* (*get_version)();
};

// The shared object and its environment. It stays in the process, because its threads cannot be
// ended.
class Runtime {
 public:
  // Returns the runtime at a path; the first call for a path opens it.
  static std::shared_ptr<const Runtime> Get(std::string path) {
    if (path.empty())
      if (const char* variable = std::getenv("OPKIT_ONNXRUNTIME")) path = variable;
    if (path.empty())
      Throw(ErrorCode::kFailedPrecondition,
            "the path of ONNX Runtime's shared object is not known: give the option runtime=PATH "
            "or set the environment variable OPKIT_ONNXRUNTIME");
    static std::mutex mutex;
    static std::map<std::string, std::shared_ptr<const Runtime>> known;
    const std::lock_guard lock(mutex);
    std::shared_ptr<const Runtime>& runtime = known[path];
    if (!runtime) runtime = std::make_shared<Runtime>(path);
    return runtime;
  }
  explicit Runtime(const std::string& path) {
    void* object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!object)
      Throw(ErrorCode::kNotFound, "ONNX Runtime cannot be loaded: ", dlerror(),
            "; the option runtime=PATH or OPKIT_ONNXRUNTIME says where it is");
    auto get_base = reinterpret_cast<const OrtBase* (*)()>(dlsym(object, "OrtGetApiBase"));
    api_ = get_base ? get_base()->get_api(kApiVersion) : nullptr;
    if (!api_) Throw(ErrorCode::kUnsupported, path, " is not ONNX Runtime, or without its C API");
    constexpr int kErrors = 3;  // level of its log
    env_ = Make(kReleaseEnv, kCreateEnv, kErrors, "opkit");
  }
  Runtime(const Runtime&) = delete;

  // Owns an object of the API.
  using Object = std::unique_ptr<void, UniqueFunction<void(void*)>>;

  template <class Result = void, class... Args>
  Result Plain(OrtMember member, Args... args) const {
    return reinterpret_cast<Result (*)(Args...)>(api_[member])(args...);
  }
  // Calls a function that returns a status, which is null for success.
  template <class... Args>
  void Call(OrtMember member, Args... args) const {
    void* const status = Plain<void*>(member, args...);
    if (!status) return;
    const std::string why = Plain<const char*>(kGetErrorMessage, static_cast<const void*>(status));
    Plain(kReleaseStatus, status);
    Throw(ErrorCode::kOperatorFailed, "ONNX Runtime: ", why);
  }
  // Calls a function whose last parameter receives the new object.
  template <class... Args>
  Object Make(OrtMember release, OrtMember create, Args... args) const {
    void* made = nullptr;
    Call(create, args..., &made);
    return Own(release, made);
  }
  Object Own(OrtMember release, void* made) const {
    return Object(made, [function = reinterpret_cast<void (*)(void*)>(api_[release])](
                            void* object) { function(object); });
  }
  // Makes a session of a model. It has one thread: the host's threads run nodes side by side.
  Object Session(const std::string& model) const {
    const Object options = Make(kReleaseSessionOptions, kCreateSessionOptions);
    Call(kSetIntraOpNumThreads, options.get(), 1);
    return Make(kReleaseSession, kCreateSessionFromArray, env_.get(),
                static_cast<const void*>(model.data()), model.size(), options.get());
  }

 private:
  void* const* api_ = nullptr;
  Object env_;
};

// Runs the body of its node. The attribute `input_types` has the dtypes of the body's inputs, as
// numbers of ONNX.
class OnnxRuntimeOp final : public Operator<CPUContext> {
 public:
  OnnxRuntimeOp(const OperatorDef& def, Workspace* ws)
      : Operator(def, ws), runtime_(Runtime::Get(def.args().Get<std::string>("runtime", ""))) {
    const Graph& body = *SubgraphOf(def, "body");
    const auto types = def.args().Get<std::vector<int64_t>>("input_types");
    Graph typed;
    for (size_t i = 0; i < body.inputs().size(); ++i) {
      input_names_.push_back(body.inputs()[i].name);
      typed.AddInput(input_names_[i], OnnxDType(types.at(i)), SymbolicShape());
    }
    for (const Graph::Constant& constant : body.constants())
      typed.AddConstant(constant.name, constant.value);
    for (const OperatorDef& node : body.nodes()) typed.AddNode(node);
    for (const std::string& output : body.outputs()) typed.AddOutput(output);
    output_names_ = body.outputs();
    session_ = runtime_->Session(ToOnnx(typed));
    constexpr int kDeviceAllocator = 0, kDefaultMemory = 0;
    memory_ =
        runtime_->Make(kReleaseMemoryInfo, kCreateCpuMemoryInfo, kDeviceAllocator, kDefaultMemory);
  }
  bool RunOnDevice() override {
    std::vector<Runtime::Object> inputs, outputs;
    std::vector<const char*> input_names, output_names;
    std::vector<const void*> input_values;
    for (int i = 0; i < InputSize(); ++i) {
      const Tensor& x = Input(i);
      inputs.push_back(runtime_->Make(
          kReleaseValue, kCreateTensorWithData, static_cast<const void*>(memory_.get()),
          const_cast<void*>(x.raw_data()), static_cast<size_t>(x.nbytes()), x.shape().data(),
          static_cast<size_t>(x.rank()), static_cast<int>(OnnxNumberOf(x.dtype()))));
      input_names.push_back(input_names_[static_cast<size_t>(i)].c_str());
      input_values.push_back(inputs.back().get());
    }
    for (const std::string& name : output_names_) output_names.push_back(name.c_str());
    std::vector<void*> made(output_names.size());
    runtime_->Call(kRun, session_.get(), static_cast<const void*>(nullptr), input_names.data(),
                   input_values.data(), input_values.size(), output_names.data(),
                   output_names.size(), made.data());
    for (void* value : made) outputs.push_back(runtime_->Own(kReleaseValue, value));
    for (size_t i = 0; i < outputs.size(); ++i) Copy(outputs[i].get(), static_cast<int>(i));
    return true;
  }

 private:
  void Copy(void* value, int index) {
    const Runtime::Object info = runtime_->Make(
        kReleaseTensorTypeAndShapeInfo, kGetTensorTypeAndShape, static_cast<const void*>(value));
    const auto type = static_cast<const void*>(info.get());
    int number = 0;
    size_t rank = 0;
    void* from = nullptr;
    runtime_->Call(kGetTensorElementType, type, &number);
    runtime_->Call(kGetDimensionsCount, type, &rank);
    std::vector<int64_t> extents(rank);
    runtime_->Call(kGetDimensions, type, extents.data(), rank);
    runtime_->Call(kGetTensorMutableData, value, &from);
    Tensor* y = Output(index, Shape(extents), OnnxDType(number));
    if (y->nbytes() > 0) std::memcpy(y->raw_mutable_data(), from, static_cast<size_t>(y->nbytes()));
  }

  std::shared_ptr<const Runtime> runtime_;
  Runtime::Object session_, memory_;
  std::vector<std::string> input_names_, output_names_;
};
OPERATOR_SCHEMA(OnnxRuntime)
    .NumInputs(0, 1 << 20)
    .NumOutputs(1, 1 << 20)
    .Input(0, "inputs", "those of the body, in its order")
    .Output(0, "outputs", "those of the body, in its order")
    .Arg<std::string>("runtime", "the shared object; empty: that of OPKIT_ONNXRUNTIME", "")
    .Arg<std::vector<int64_t>>("input_types", "the types of the inputs, as numbers of ONNX")
    .NeedsSubgraph()
    .Doc("Runs the subgraph `body` in ONNX Runtime.");
REGISTER_CPU_OPERATOR(OnnxRuntime, OnnxRuntimeOp);

std::string OptionOf(const PartitionArguments& options, const std::string& name) {
  for (const auto& [option, value] : options)
    if (option == name) return value;
  return "";
}
void Supported(const PartitionView& view, PartitionAnswer& answer,
               const PartitionArguments& options) {
  for (const auto& [name, value] : options)
    if (name != "ops" && name != "runtime")
      Throw(ErrorCode::kInvalidArgument, "there is no option '", name,
            "'; those of onnxruntime are ops and runtime");
  Runtime::Get(OptionOf(options, "runtime"));  // or says why not, before anything is taken
  const std::string ops = "," + OptionOf(options, "ops") + ",";
  for (const PartitionNode& node : view.nodes())
    if (ops == ",," || ops.find("," + node.op() + ",") != std::string::npos)
      answer.Take(node);
    else
      answer.Refuse(node, "it is not among the option ops");
}
// Takes only nodes for which ONNX Runtime can make a session.
void Review(SubgraphReview& review, const PartitionArguments& options) {
  const std::string path = OptionOf(options, "runtime");
  std::vector<int64_t> types;
  for (const Graph::Input& input : review.body().inputs()) {
    types.push_back(OnnxNumberOf(input.info.dtype));
    if (types.back() == 0)
      return review.Reject("the type of its input '" + input.name + "' is not known");
  }
  try {
    Runtime::Get(path)->Session(ToOnnx(review.body()));
  } catch (const Error& error) {
    return review.Reject(error.message());
  }
  review.SetAttribute("input_types", types);
  if (!path.empty()) review.SetAttribute("runtime", path);
}
REGISTER_PARTITIONER(onnxruntime)
    .setSupportedOps(Supported)
    .setSubgraphOp("OnnxRuntime")
    .setAcceptSubgraph(Review);

}  // namespace
