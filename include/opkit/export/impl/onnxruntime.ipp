// The definitions of onnxruntime.hpp: custom operators, their kernels and their shape inference.
#ifndef OPKIT_EXPORT_IMPL_ONNXRUNTIME_IPP_
#define OPKIT_EXPORT_IMPL_ONNXRUNTIME_IPP_

#include <thread>

#include "opkit/device/native_stream.hpp"
#include "opkit/engine/parallel_for.hpp"
#include "opkit/export/core.hpp"
#include "opkit/export/onnxruntime.hpp"
#include "opkit/export/onnxruntime/ort_attributes.hpp"
#include "opkit/export/onnxruntime/ort_signature.hpp"
#include "opkit/export/onnxruntime/ort_tensor.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

constexpr OrtCode OrtCodeOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kTypeMismatch:
    case ErrorCode::kNotFound:
    case ErrorCode::kOutOfRange:
    case ErrorCode::kUninitialized:
      return OrtCode::kInvalidArgument;
    case ErrorCode::kUnsupported:
      return OrtCode::kNotImplemented;
    default:
      return OrtCode::kFail;
  }
}
// Returns null, or the status of the Error that `call` throws.
template <class Call>
inline void* OrtGuard(const OrtApi& api, Call call) noexcept {
  return GuardBoundary(
      [&]() -> void* {
        call();
        return nullptr;
      },
      [&](ErrorCode code, const char* text) { return api.MakeStatus(OrtCodeOf(code), text); });
}

// An exported operator, with what it needs of the ONNX Runtime that has loaded it.
struct OPKIT_IMAGE_LOCAL OrtOperator {
  const OrtApi& api;
  const ExportedOperator& exported;
  OrtSignature signature;
};

// An operator for one choice of dtypes and one device. The host keeps the address.
struct OPKIT_IMAGE_LOCAL OrtVersion : OrtCustomOp {
  OrtVersion(const OrtOperator& of, const OrtTypes& dtypes, DeviceType on);

  const OrtOperator& op;
  const OrtTypes& types;
  const DeviceType device;
  const std::string provider;  // empty: the host's own kernels
};

// A kernel of one node in one session, which several threads may run.
class OPKIT_IMAGE_LOCAL OrtKernel {
 public:
  OrtKernel(const OrtVersion& version, const void* info)
      : api_(version.op.api),
        types_(version.types),
        device_(DeviceOf(version, info)),
        threads_(static_cast<int>((std::max)(std::thread::hardware_concurrency(), 1u))),
        pool_(MakePool(version, info)) {}
  const OrtApi& api() const { return api_; }

  void Compute(void* context) {
    const Lease op = pool_->Take();
    for (int i = 0; i < op->num_inputs(); ++i) {
      if (!op->has_input(i)) continue;
      const void* value = nullptr;
      api_.Call(OrtPlace::kKernelContextGetInput, static_cast<const void*>(context), Index(i),
                &value);
      op->SetInput(i, OrtTensor(api_, value, device_));
    }
    const auto inferred = op->InferOutputs();
    for (int o = 0; o < op->num_outputs(); ++o) {
      const ReadyOperator::Inferred& output = inferred[Index(o)];
      if (!output.known) continue;
      if (const auto to = Output(context, o, output.shape)) op->SetOutput(o, *to);
    }
    Run(*op, context);
    for (int o = 0; o < op->num_outputs(); ++o) {
      if (inferred[Index(o)].known) continue;
      if (const auto to = Output(context, o, op->result(o).shape())) op->CopyOutput(o, *to);
    }
  }

 private:
  static Device DeviceOf(const OrtVersion& version, const void* info) {
    if (version.device == DeviceType::kCPU) return {};
    constexpr int kDefaultMemory = 0;
    void* allocator = nullptr;
    const void* memory = nullptr;
    int id = 0;
    const OrtApi& api = version.op.api;
    api.Call(OrtPlace::kKernelInfoGetAllocator, info, kDefaultMemory, &allocator);
    api.Call(OrtPlace::kAllocatorGetInfo, static_cast<const void*>(allocator), &memory);
    api.Call(OrtPlace::kMemoryInfoGetId, memory, &id);
    return {version.device, id};
  }
  std::unique_ptr<OperatorPool> MakePool(const OrtVersion& version, const void* info) const {
    size_t num_inputs = 0, num_outputs = 0;
    api_.Call(OrtPlace::kKernelInfoGetInputCount, info, &num_inputs);
    api_.Call(OrtPlace::kKernelInfoGetOutputCount, info, &num_outputs);
    std::vector<int> present;
    for (size_t i = 0; i < num_inputs; ++i) {
      size_t size = 0;  // of the value's name, with the zero at its end
      api_.Call(OrtPlace::kKernelInfoGetInputName, info, i, static_cast<char*>(nullptr), &size);
      present.push_back(size > 1);
    }
    const ExportedOperator& op = version.op.exported;
    Arguments args = KernelArguments(api_, op.schema(), info);
    RefuseMutation(op, static_cast<int>(num_inputs), args, "ONNX Runtime");
    return std::make_unique<OperatorPool>(op, std::move(present), std::move(args), device_,
                                          static_cast<int>(num_outputs));
  }
  // Makes the host's output; nothing for an output that the node leaves out.
  std::optional<ForeignTensor> Output(void* context, int o, const Shape& shape) const {
    void* value = nullptr;
    api_.Call(OrtPlace::kKernelContextGetOutput, context, static_cast<size_t>(o), shape.data(),
              static_cast<size_t>(shape.rank()), &value);
    if (!value) return {};
    ForeignTensor to;
    api_.Call(OrtPlace::kGetTensorMutableData, value, &to.data);
    to.dtype = types_.outputs[(std::min)(Index(o), types_.outputs.size() - 1)];
    to.device = device_;
    to.rank = shape.rank();
    to.shape = shape.data();
    return to;
  }
  // Runs with the session's threads, or on its stream.
  void Run(ReadyOperator& op, void* context) const {
    const auto on_threads = [&](int count, FunctionRef<void()> work) {
      void (*const call)(void*, size_t) = [](void* function, size_t) {
        (*static_cast<FunctionRef<void()>*>(function))();
      };
      api_.Call(OrtPlace::kKernelContextParallelFor, static_cast<const void*>(context), call,
                static_cast<size_t>(count), size_t{0}, static_cast<void*>(&work));
    };
    const LoopsOnHost loops(threads_, on_threads);
    const ScopedValue on_host(t_loop_runner, &loops);
    if (device_.type == DeviceType::kCPU) return op.Run();
    void* stream = nullptr;
    api_.Call(OrtPlace::kKernelContextGetGpuComputeStream, static_cast<const void*>(context),
              &stream);
    op.Issue(stream);
  }

  const OrtApi& api_;
  const OrtTypes& types_;
  const Device device_;
  const int threads_;
  const std::unique_ptr<OperatorPool> pool_;
};

// The shape inference of one node. It reads the symbols of the inputs' extents, and writes those of
// the outputs.
class OPKIT_IMAGE_LOCAL OrtInference {
 public:
  OrtInference(const OrtOperator& op, void* context) : op_(op), api_(op.api), context_(context) {}

  void Run() {
    const OpSchema& schema = op_.exported.schema();
    size_t num_inputs = 0;
    api_.Call(OrtPlace::kShapeInferContextGetInputCount, Context(), &num_inputs);
    Arguments args = InferenceArguments(api_, schema, context_);
    const int count = schema.CalculateOutput(static_cast<int>(num_inputs), args);
    const int num_outputs = count < 0 ? schema.min_outputs() : count;
    OperatorDef def(schema.name(), {}, {}, std::move(args));
    std::vector<TensorInfo> infos;
    for (size_t i = 0; i < num_inputs; ++i) {
      infos.push_back(Input(i));
      def.Input(infos[i].dtype == DType::kUndefined ? std::string() : StrCat("input ", i));
    }
    for (int o = 0; o < num_outputs; ++o) def.Output(StrCat("output ", o));
    const std::vector<TensorInfo> outputs = schema.InferOutputs(def, std::move(infos));
    for (size_t o = 0; o < outputs.size(); ++o)
      if (outputs[o].shape.has_rank()) Output(o, outputs[o]);
  }

 private:
  const void* Context() const { return context_; }
  // Returns the undefined dtype for an input that the node leaves out.
  TensorInfo Input(size_t i) {
    TensorInfo input;
    const void* info = nullptr;
    if (!api_.Try(OrtPlace::kShapeInferContextGetInputTypeShape, Context(), i, &info) || !info)
      return input;
    int type = 0;
    size_t rank = 0;
    api_.Call(OrtPlace::kGetTensorElementType, info, &type);
    api_.Call(OrtPlace::kGetDimensionsCount, info, &rank);
    input.dtype = OnnxDType(type);
    if (rank == 0) return input;  // a scalar, or a shape of which the rank is not known
    std::vector<int64_t> extents(rank);
    std::vector<const char*> symbols(rank, "");
    api_.Call(OrtPlace::kGetDimensions, info, extents.data(), rank);
    api_.Call(OrtPlace::kGetSymbolicDimensions, info, symbols.data(), rank);
    std::vector<Dim> dims;
    for (size_t axis = 0; axis < rank; ++axis) {
      const std::string symbol = symbols[axis] ? symbols[axis] : "";
      if (!symbol.empty()) known_.emplace_back(symbol, symbol);
      dims.push_back(extents[axis] >= 0 ? Dim(extents[axis])
                     : symbol.empty()   ? Dim()
                                        : Sym(symbol));
    }
    input.shape = SymbolicShape(std::move(dims));
    return input;
  }
  void Output(size_t o, const TensorInfo& output) {
    std::vector<int64_t> extents;
    std::vector<std::string> names;
    for (const Dim& dim : output.shape.dims()) {
      extents.push_back(dim.is_known() ? dim.value() : -1);
      names.push_back(dim.is_known() ? std::string() : HostSymbol(dim));
    }
    std::vector<const char*> symbols;
    for (const std::string& name : names) symbols.push_back(name.c_str());
    void* info = nullptr;
    api_.Call(OrtPlace::kCreateTensorTypeAndShapeInfo, &info);
    const size_t rank = extents.size();
    const bool set = api_.Try(OrtPlace::kSetTensorElementType, info,
                              static_cast<int>(OnnxNumberOf(output.dtype))) &&
                     api_.Try(OrtPlace::kSetDimensions, info, extents.data(), rank) &&
                     api_.Try(OrtPlace::kSetSymbolicDimensions, info, symbols.data(), rank);
    // Fails for an optional output that the node does not have.
    if (set)
      api_.Try(OrtPlace::kShapeInferContextSetOutputTypeShape, Context(), o,
               static_cast<const void*>(info));
    api_.Plain<void>(OrtPlace::kReleaseTensorTypeAndShapeInfo, info);
  }
  // Returns the host's symbol of an extent. The host takes extents of equal symbols for equal in
  // the whole model, so an extent that does not come from an input gets a symbol of its own.
  std::string HostSymbol(const Dim& dim) {
    for (const auto& [ours, host] : known_)
      if (dim.is_symbol() && ours == dim.symbol()) return host;
    static std::atomic<uint64_t> count{0};
    std::string made = StrCat("opkit_extent_", count.fetch_add(1, std::memory_order_relaxed));
    if (dim.is_symbol()) known_.emplace_back(dim.symbol(), made);
    return made;
  }

  const OrtOperator& op_;
  const OrtApi& api_;
  void* const context_;
  std::vector<std::pair<std::string, std::string>> known_;  // symbols: ours, the host's
};

inline const OrtVersion& VersionOf(const OrtCustomOp* op) {
  return *static_cast<const OrtVersion*>(op);
}
inline int NumberAt(const std::vector<DType>& dtypes, size_t i) {
  return i < dtypes.size() ? static_cast<int>(OnnxNumberOf(dtypes[i])) : 0;
}

// Returns the host's name of a device's kernels: that of the device in capitals, and a suffix.
inline std::string ProviderOf(DeviceType device) {
  if (device == DeviceType::kCPU) return {};
  std::string name = ToString(device);
  for (char& c : name)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return name + "ExecutionProvider";
}

inline OrtVersion::OrtVersion(const OrtOperator& of, const OrtTypes& dtypes, DeviceType on)
    : op(of), types(dtypes), device(on), provider(ProviderOf(on)) {
  get_name = [](const OrtCustomOp* self) { return VersionOf(self).op.exported.name(); };
  get_execution_provider_type = [](const OrtCustomOp* self) -> const char* {
    const std::string& name = VersionOf(self).provider;
    return name.empty() ? nullptr : name.c_str();
  };
  get_input_type = [](const OrtCustomOp* self, size_t i) {
    return NumberAt(VersionOf(self).types.inputs, i);
  };
  get_input_type_count = [](const OrtCustomOp* self) {
    return VersionOf(self).types.inputs.size();
  };
  get_output_type = [](const OrtCustomOp* self, size_t o) {
    return NumberAt(VersionOf(self).types.outputs, o);
  };
  get_output_type_count = [](const OrtCustomOp* self) {
    return VersionOf(self).types.outputs.size();
  };
  kernel_destroy = [](void* kernel) { delete static_cast<OrtKernel*>(kernel); };
  get_input_characteristic = [](const OrtCustomOp* self, size_t i) {
    return VersionOf(self).op.signature.inputs.arities[i];
  };
  get_output_characteristic = [](const OrtCustomOp* self, size_t o) {
    return VersionOf(self).op.signature.outputs.arities[o];
  };
  get_input_memory_type = [](const OrtCustomOp*, size_t) { return 0; };
  get_variadic_input_min_arity = [](const OrtCustomOp* self) {
    return VersionOf(self).op.signature.inputs.variadic_least;
  };
  get_variadic_output_min_arity = [](const OrtCustomOp* self) {
    return VersionOf(self).op.signature.outputs.variadic_least;
  };
  get_variadic_input_homogeneity =
      get_variadic_output_homogeneity = [](const OrtCustomOp*) { return 1; };
  create_kernel_v2 = [](const OrtCustomOp* self, const void*, const void* info, void** kernel) {
    const OrtVersion& made = VersionOf(self);
    return OrtGuard(made.op.api, [&] { *kernel = new OrtKernel(made, info); });
  };
  kernel_compute_v2 = [](void* self, void* context) {
    auto& kernel = *static_cast<OrtKernel*>(self);
    return OrtGuard(kernel.api(), [&] { kernel.Compute(context); });
  };
  // Before inference, older hosts read the type of an optional input that a node leaves out, which
  // is a null pointer: 1.20.1 does, 1.31.1 does not.
  bool has_optional = false;
  for (const OrtArity arity : of.signature.inputs.arities)
    has_optional |= arity == OrtArity::kOptional;
  if (of.api.Has(OrtApi::kNewest) || !has_optional)
    infer_output_shape = [](const OrtCustomOp* self, void* context) {
      const OrtOperator& called = VersionOf(self).op;
      return OrtGuard(called.api, [&] { OrtInference(called, context).Run(); });
    };
  get_start_version = [](const OrtCustomOp*) { return 1; };
  get_end_version = [](const OrtCustomOp*) { return (std::numeric_limits<int>::max)(); };
}

// The exported operators as one ONNX Runtime of the process knows them. Sessions keep addresses of
// them, so they stay until the process ends.
class OPKIT_IMAGE_LOCAL OrtOperators {
 public:
  // Throws the errors of OrtApi and OrtSignature.
  static const OrtOperators& In(const OrtApiBase& base) {
    static std::mutex mutex;
    static std::vector<std::pair<const OrtApiBase*, std::unique_ptr<const OrtOperators>>> known;
    const std::lock_guard lock(mutex);
    for (const auto& [host, operators] : known)
      if (host == &base) return *operators;
    known.emplace_back(&base, std::make_unique<const OrtOperators>(base));
    return *known.back().second;
  }
  explicit OrtOperators(const OrtApiBase& base) : api_(base) {
    for (const ExportedOperator* op = g_onnxruntime_operators.first(); op; op = op->next()) {
      operators_.push_back(
          std::make_unique<const OrtOperator>(OrtOperator{api_, *op, OrtSignature(op->schema())}));
      constexpr int kDeviceTypes = 128;
      for (int type = 0; type < kDeviceTypes; ++type) {
        const auto device = static_cast<DeviceType>(type);
        if (device != DeviceType::kCPU && !FindNativeStreams(device)) continue;
        if (OpRegistry::Global().FindKernels(op->name(), device).empty()) continue;
        for (const OrtTypes& types : operators_.back()->signature.types)
          versions_.push_back(
              std::make_unique<const OrtVersion>(*operators_.back(), types, device));
      }
    }
    api_.Call(OrtPlace::kCreateCustomOpDomain, ExportDomain(), &domain_);
    for (const auto& version : versions_)
      api_.Call(OrtPlace::kCustomOpDomainAdd, domain_,
                static_cast<const OrtCustomOp*>(version.get()));
  }
  void AddTo(void* session_options) const {
    api_.Call(OrtPlace::kAddCustomOpDomain, session_options, domain_);
  }

 private:
  const OrtApi api_;
  std::vector<std::unique_ptr<const OrtOperator>> operators_;
  std::vector<std::unique_ptr<const OrtVersion>> versions_;
  void* domain_ = nullptr;
};

OPKIT_INLINE void* RegisterForOnnxRuntime(void* session_options, const OrtApiBase& base) noexcept {
  return GuardBoundary(
      [&]() -> void* {
        OrtOperators::In(base).AddTo(session_options);
        return nullptr;
      },
      [&](ErrorCode code, const char* text) -> void* {
        // Any table has the function that makes a status.
        using Create = void* (*)(int code, const char* text);
        return reinterpret_cast<Create>(base.get_api(1)[0])(static_cast<int>(OrtCodeOf(code)),
                                                            text);
      });
}

}}}  // namespace opkit::detail

#endif  // OPKIT_EXPORT_IMPL_ONNXRUNTIME_IPP_
