// The definitions of xla.hpp.
#ifndef OPKIT_EXPORT_IMPL_XLA_IPP_
#define OPKIT_EXPORT_IMPL_XLA_IPP_

#include <condition_variable>

#include "opkit/engine/parallel_for.hpp"
#include "opkit/export/xla.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline constexpr std::string_view kXlaInputsAttribute = "opkit_inputs";

constexpr xla::ErrorKind XlaKindOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kTypeMismatch:
      return xla::ErrorKind::kInvalidArgument;
    case ErrorCode::kNotFound:
      return xla::ErrorKind::kNotFound;
    case ErrorCode::kAlreadyExists:
      return xla::ErrorKind::kAlreadyExists;
    case ErrorCode::kOutOfRange:
      return xla::ErrorKind::kOutOfRange;
    case ErrorCode::kOutOfMemory:
      return xla::ErrorKind::kResourceExhausted;
    case ErrorCode::kUnsupported:
      return xla::ErrorKind::kUnimplemented;
    case ErrorCode::kUninitialized:
    case ErrorCode::kFailedPrecondition:
      return xla::ErrorKind::kFailedPrecondition;
    case ErrorCode::kCancelled:
      return xla::ErrorKind::kCancelled;
    case ErrorCode::kDeadlineExceeded:
      return xla::ErrorKind::kDeadlineExceeded;
    case ErrorCode::kIo:
      return xla::ErrorKind::kUnknown;
    default:
      return xla::ErrorKind::kInternal;
  }
}

inline xla::Error* MakeXlaError(const xla::Api& api, ErrorCode code, const char* text) {
  auto args = xla::Sized(xla::ErrorCreateArgs{{}, text, XlaKindOf(code)});
  return api.error_create(&args);
}
// Returns true if XLA's function succeeded. Destroys its error otherwise.
inline bool Succeeded(const xla::Api& api, xla::Error* error) {
  if (!error) return true;
  auto args = xla::Sized(xla::ErrorDestroyArgs{{}, error});
  api.error_destroy(&args);
  return false;
}

inline DType DTypeOfXla(xla::DataType type) {
  switch (type) {
    case xla::DataType::kPred:
      return DType::kBool;
    case xla::DataType::kS8:
      return DType::kInt8;
    case xla::DataType::kS16:
      return DType::kInt16;
    case xla::DataType::kS32:
      return DType::kInt32;
    case xla::DataType::kS64:
      return DType::kInt64;
    case xla::DataType::kU8:
      return DType::kUInt8;
    case xla::DataType::kU16:
      return DType::kUInt16;
    case xla::DataType::kU32:
      return DType::kUInt32;
    case xla::DataType::kU64:
      return DType::kUInt64;
    case xla::DataType::kF16:
      return DType::kFloat16;
    case xla::DataType::kBF16:
      return DType::kBFloat16;
    case xla::DataType::kF32:
      return DType::kFloat32;
    case xla::DataType::kF64:
      return DType::kFloat64;
    case xla::DataType::kC64:
      return DType::kComplex64;
    case xla::DataType::kC128:
      return DType::kComplex128;
  }
  Throw(ErrorCode::kUnsupported, "XLA's element type ", static_cast<int>(type),
        " is not a dtype of opkit");
}

// Returns one number or a list of them as an attribute.
inline Attribute NumbersOfXla(xla::DataType type, const void* data, size_t count, bool is_list) {
  const DType dtype = DTypeOfXla(type);
  auto values = MakeIntrusive<Attribute::Values>();
  const auto add = [&]<class T>(std::vector<T>& to, auto example) {
    for (size_t i = 0; i < count; ++i) {
      decltype(example) value;
      std::memcpy(&value, static_cast<const char*>(data) + i * sizeof value, sizeof value);
      if constexpr (std::is_same_v<decltype(example), uint64_t>)
        if (static_cast<int64_t>(value) < 0)
          Throw(ErrorCode::kOutOfRange, "value ", value, " does not fit in int64");
      if constexpr (std::is_integral_v<decltype(example)>)
        to.push_back(static_cast<T>(value));
      else
        to.push_back(static_cast<T>(static_cast<double>(value)));
    }
  };
  auto element = AttributeType::kInt;
  if (dtype == DType::kBool) {
    element = AttributeType::kBool;
    add(values->ints, uint8_t{});
  } else if (IsFloatingPoint(dtype)) {
    element = AttributeType::kFloat;
    if (dtype == DType::kFloat64) add(values->floats, double{});
    if (dtype == DType::kFloat32) add(values->floats, float{});
    if (dtype == DType::kFloat16) add(values->floats, float16{});
    if (dtype == DType::kBFloat16) add(values->floats, bfloat16{});
  } else {
    switch (dtype) {
      case DType::kInt8:
        add(values->ints, int8_t{});
        break;
      case DType::kInt16:
        add(values->ints, int16_t{});
        break;
      case DType::kInt32:
        add(values->ints, int32_t{});
        break;
      case DType::kInt64:
        add(values->ints, int64_t{});
        break;
      case DType::kUInt8:
        add(values->ints, uint8_t{});
        break;
      case DType::kUInt16:
        add(values->ints, uint16_t{});
        break;
      case DType::kUInt32:
        add(values->ints, uint32_t{});
        break;
      case DType::kUInt64:
        add(values->ints, uint64_t{});
        break;
      default:
        Throw(ErrorCode::kUnsupported, "a value of ", dtype,
              "; an attribute is a bool, an integer, a floating-point number or a string");
    }
  }
  const int kind = static_cast<int>(element) + (is_list ? 5 : 0);
  return Attribute(static_cast<AttributeType>(kind), std::move(values));
}

inline std::string TextOf(const xla::ByteSpan& span) { return {span.data, span.size}; }

// Reads {"0": "first", "1": "second"} as a list of strings.
inline Attribute StringsOfXla(const xla::Attributes& dict) {
  std::vector<std::string> strings(static_cast<size_t>(dict.size));
  for (size_t i = 0; i < strings.size(); ++i) {
    const std::string key = StrCat(i);
    bool found = false;
    for (int64_t k = 0; k < dict.size && !found; ++k) {
      found = TextOf(*dict.names[k]) == key && dict.kinds[k] == xla::AttributeKind::kString;
      if (found) strings[i] = TextOf(*static_cast<const xla::ByteSpan*>(dict.values[k]));
    }
    if (!found)
      Throw(ErrorCode::kInvalidArgument, "a dictionary without a string '", key,
            "'; a list of strings is given as {\"0\": \"first\", \"1\": \"second\"}");
  }
  return strings;
}

inline Attribute AttributeOfXla(xla::AttributeKind kind, const void* value) {
  switch (kind) {
    case xla::AttributeKind::kScalar: {
      const auto& scalar = *static_cast<const xla::Scalar*>(value);
      return NumbersOfXla(scalar.dtype, scalar.value, 1, false);
    }
    case xla::AttributeKind::kArray: {
      const auto& array = *static_cast<const xla::Array*>(value);
      return NumbersOfXla(array.dtype, array.data, array.size, true);
    }
    case xla::AttributeKind::kString:
      return TextOf(*static_cast<const xla::ByteSpan*>(value));
    case xla::AttributeKind::kDictionary:
      return StringsOfXla(*static_cast<const xla::Attributes*>(value));
  }
  Throw(ErrorCode::kUnsupported, "XLA's attribute kind ", static_cast<int>(kind), " is not known");
}

// The attributes of a call, and which of its inputs are left out.
struct OPKIT_IMAGE_LOCAL XlaAttributes {
  Arguments args;
  std::optional<std::vector<int>> present;

  XlaAttributes(const OpSchema& schema, const xla::Attributes& attrs) {
    for (int64_t i = 0; i < attrs.size; ++i) {
      const std::string name = TextOf(*attrs.names[i]);
      InContext(
          [&] {
            Attribute value = AttributeOfXla(attrs.kinds[i], attrs.values[i]);
            if (name == kXlaInputsAttribute) {
              present.emplace();
              for (const int64_t given : value.values().ints) present->push_back(given != 0);
            } else {
              args.Set(name, FitAttribute(schema.FindAttribute(name), std::move(value)));
            }
          },
          [&] { return StrCat("in attribute '", name, "' of ", schema.name()); });
    }
  }
  // Throws kInvalidArgument if opkit_inputs does not describe this number of arguments.
  std::vector<int> PresentFor(size_t num_args) const {
    if (!present) return std::vector<int>(num_args, 1);
    size_t given = 0;
    for (const int one : *present) given += one != 0;
    if (given != num_args)
      Throw(ErrorCode::kInvalidArgument, "attribute '", kXlaInputsAttribute, "' names ", given,
            " present inputs, but the call has ", num_args);
    return *present;
  }
};

inline void AddXlaAttributes(CallKey& key, const xla::Attributes& attrs) {
  for (int64_t i = 0; i < attrs.size; ++i) {
    key.AddText({attrs.names[i]->data, attrs.names[i]->size});
    key.Add(attrs.kinds[i]);
    const void* value = attrs.values[i];
    const auto add = [&](xla::DataType type, const void* data, size_t count) {
      key.Add(type), key.Add(count);
      key.AddBytes(data, count * static_cast<size_t>(ItemSize(DTypeOfXla(type))));
    };
    switch (attrs.kinds[i]) {
      case xla::AttributeKind::kScalar: {
        const auto& scalar = *static_cast<const xla::Scalar*>(value);
        add(scalar.dtype, scalar.value, 1);
        break;
      }
      case xla::AttributeKind::kArray: {
        const auto& array = *static_cast<const xla::Array*>(value);
        add(array.dtype, array.data, array.size);
        break;
      }
      case xla::AttributeKind::kString: {
        const auto& text = *static_cast<const xla::ByteSpan*>(value);
        key.AddText({text.data, text.size});
        break;
      }
      case xla::AttributeKind::kDictionary: {
        const auto& dict = *static_cast<const xla::Attributes*>(value);
        key.Add(dict.size);
        AddXlaAttributes(key, dict);
        break;
      }
    }
  }
}

// The state of a stateful operator's call in one compiled program. The number of inputs is known at
// the first run.
struct OPKIT_IMAGE_LOCAL XlaState {
  const XlaOperator& op;
  const XlaAttributes attributes;
  std::mutex mutex;  // guards pool
  std::unique_ptr<OperatorPool> pool;

  Lease Take(size_t num_args, size_t num_rets, Device device) {
    {
      const std::lock_guard lock(mutex);
      if (!pool)
        pool = std::make_unique<OperatorPool>(op.op, attributes.PresentFor(num_args),
                                              attributes.args, device, static_cast<int>(num_rets));
    }
    return pool->Take();
  }
};

OPKIT_INLINE void DeleteXlaState(void* state) { delete static_cast<XlaState*>(state); }

// Runs calls of `work` in XLA's thread pool. The pool may be busy, even with callers that wait like
// this one, so a task that has not begun when the caller's own work is done does nothing.
class OPKIT_IMAGE_LOCAL XlaThreads {
 public:
  XlaThreads(const xla::Api& api, xla::ExecutionContext* context) : api_(api), context_(context) {}

  // Returns 0 if XLA has no thread pool here.
  int Count() const {
    int64_t threads = 0;
    auto args = xla::Sized(xla::ThreadPoolNumThreadsArgs{{}, context_, &threads});
    if (!Succeeded(api_, api_.thread_pool_num_threads(&args))) return 0;
    return static_cast<int>((std::min)(threads, int64_t{ThreadPool::kMaxThreads}));
  }
  // Returns false, and does not take `data`, if XLA has no thread pool here.
  bool Schedule(void (*task)(void*), void* data) const {
    auto args = xla::Sized(xla::ThreadPoolScheduleArgs{{}, context_, task, data});
    return Succeeded(api_, api_.thread_pool_schedule(&args));
  }

  void Run(int count, FunctionRef<void()> work) const {
    auto batch = std::make_shared<Batch>(work);
    const Closing closing{*batch};
    for (int i = 1; i < count; ++i) {
      auto ticket = std::make_unique<std::shared_ptr<Batch>>(batch);
      if (!Schedule(&Batch::RunOne, ticket.get())) break;
      ticket.release();
    }
    work();
  }

 private:
  struct Batch {
    explicit Batch(FunctionRef<void()> call) : work(call) {}

    static void RunOne(void* ticket) {
      const std::unique_ptr<std::shared_ptr<Batch>> owned(
          static_cast<std::shared_ptr<Batch>*>(ticket));
      Batch& batch = **owned;
      std::unique_lock lock(batch.mutex);
      if (batch.closed) return;
      ++batch.inside;
      lock.unlock();
      batch.work();
      lock.lock();
      if (--batch.inside == 0) batch.left.notify_all();
    }
    // Lets no further task begin, and waits for those that have begun.
    void Close() {
      std::unique_lock lock(mutex);
      closed = true;
      left.wait(lock, [&] { return inside == 0; });
    }

    const FunctionRef<void()> work;  // valid until Close returns
    std::mutex mutex;
    std::condition_variable left;
    int inside = 0;
    bool closed = false;
  };
  struct Closing {
    Batch& batch;
    ~Closing() { batch.Close(); }
  };

  const xla::Api& api_;
  xla::ExecutionContext* const context_;
};

// A call of a handler. It runs before the handler returns, or later in a thread of XLA.
struct OPKIT_IMAGE_LOCAL XlaCall {
  const XlaOperator& op;
  xla::CallFrame frame;
  Device device;
  void* stream = nullptr;
  XlaState* state = nullptr;

  void Run() {
    const auto num_args = static_cast<size_t>(frame.args.size);
    const auto num_rets = static_cast<size_t>(frame.rets.size);
    const Lease ready = Take(num_args, num_rets);
    for (int i = 0, given = 0; i < ready->num_inputs(); ++i)
      if (ready->has_input(i)) ready->SetInput(i, TensorOf(frame.args, Index(given++)));
    for (size_t o = 0; o < num_rets; ++o)
      ready->SetOutput(static_cast<int>(o), TensorOf(frame.rets, o));
    if (device.type == DeviceType::kCUDA)
      ready->Issue(stream);
    else
      ready->Run();
  }

 private:
  ForeignTensor TensorOf(const xla::Values& values, size_t i) const {
    const auto& buffer = *static_cast<const xla::Buffer*>(values.values[i]);
    return {buffer.data, DTypeOfXla(buffer.dtype),
            device,      static_cast<int>(buffer.rank),
            buffer.dims, nullptr};
  }
  Lease Take(size_t num_args, size_t num_rets) const {
    if (state) return state->Take(num_args, num_rets, device);
    CallKey key;
    key.Add(device.type), key.Add(device.index), key.Add(num_args), key.Add(num_rets);
    AddXlaAttributes(key, frame.attrs);
    return KeptOperator(op.op, key, [&] {
      const XlaAttributes attributes(op.op.schema(), frame.attrs);
      std::vector<int> present = attributes.PresentFor(num_args);
      RefuseMutation(op.op, static_cast<int>(present.size()), attributes.args, "XLA");
      return std::make_unique<ReadyOperator>(op.op.name(), present, attributes.args, device,
                                             static_cast<int>(num_rets));
    });
  }
};

// Copies of the descriptions of a call's arguments or results, in which it points to the copies.
// jaxlib 0.10.2 fills those of its call frame with another call's once the handler has returned. It
// keeps the elements, and the attributes, until the future is complete.
class OPKIT_IMAGE_LOCAL XlaOwnedValues {
 public:
  explicit XlaOwnedValues(xla::Values& values) {
    const auto count = static_cast<size_t>(values.size);
    for (size_t i = 0; i < count; ++i) {
      buffers_.push_back(*static_cast<const xla::Buffer*>(values.values[i]));
      const xla::Buffer& buffer = buffers_.back();
      extents_.insert(extents_.end(), buffer.dims, buffer.dims + buffer.rank);
    }
    int64_t* extents = extents_.data();
    for (xla::Buffer& buffer : buffers_) {
      buffer.dims = extents;
      extents += buffer.rank;
      pointers_.push_back(&buffer);
    }
    values.values = pointers_.data();
  }
  XlaOwnedValues(XlaOwnedValues&&) = delete;

 private:
  std::vector<xla::Buffer> buffers_;
  std::vector<int64_t> extents_;
  std::vector<void*> pointers_;
};

// Runs a call in XLA's thread pool and completes its future.
struct OPKIT_IMAGE_LOCAL XlaLaterCall {
  explicit XlaLaterCall(const XlaCall& of) : call(of) {}

  XlaCall call;
  const XlaOwnedValues args{call.frame.args}, rets{call.frame.rets};

  static void Run(void* data) {
    const std::unique_ptr<XlaLaterCall> owned(static_cast<XlaLaterCall*>(data));
    XlaCall& call = owned->call;
    const xla::Api& api = *call.frame.api;
    // A loop that waited for other tasks of the pool could wait for ever: all its threads may run
    // later calls.
    const auto in_place = [](int, FunctionRef<void()> work) { work(); };
    const LoopsOnHost loops(1, in_place);
    const ScopedValue<const LoopRunner*> on_host(t_loop_runner, &loops);
    xla::Error* const error = GuardBoundary(
        [&]() -> xla::Error* {
          call.Run();
          return nullptr;
        },
        [&](ErrorCode code, const char* text) { return MakeXlaError(api, code, text); });
    if (error) {
      auto args = xla::Sized(xla::FutureSetErrorArgs{{}, call.frame.future, error});
      Succeeded(api, api.future_set_error(&args));
    } else {
      auto args = xla::Sized(xla::FutureSetAvailableArgs{{}, call.frame.future});
      Succeeded(api, api.future_set_available(&args));
    }
  }
};

// Checks the attributes when XLA makes its program, and makes the state of a stateful operator.
inline xla::Error* InstantiateXla(const XlaOperator& op, xla::CallFrame& frame, XlaRun run) {
  const OpSchema& schema = op.op.schema();
  XlaAttributes attributes(schema, frame.attrs);
  const size_t num_inputs =
      attributes.present ? attributes.present->size() : static_cast<size_t>(schema.min_inputs());
  const std::vector<int> present =
      attributes.present ? *attributes.present : std::vector<int>(num_inputs, 1);
  RefuseMutation(op.op, static_cast<int>(num_inputs), attributes.args, "XLA");
  // A number of inputs that the schema does not decide is not known before the first run.
  const Device device{run == XlaRun::kOnCuda ? DeviceType::kCUDA : DeviceType::kCPU, 0};
  if (schema.min_inputs() == schema.max_inputs() && schema.min_outputs() == schema.max_outputs())
    ReadyOperator(op.op.name(), present, attributes.args, device);
  if (!op.op.needs_instance()) return nullptr;
  if (op.state_type_id->value == 0)
    Throw(ErrorCode::kFailedPrecondition, "the state of operator ", op.op.name(),
          " has no type in XLA; call jax.ffi.register_ffi_type with opkit_xla_type_id_",
          op.op.name(), " and opkit_xla_type_info_", op.op.name(), " first");
  auto state = std::unique_ptr<XlaState>(new XlaState{op, std::move(attributes), {}, nullptr});
  auto args =
      xla::Sized(xla::StateArgs{{}, frame.context, frame.stage, op.state_type_id, state.get()});
  xla::Error* const error = frame.api->state_set(&args);
  if (!error) state.release();
  return error;
}

inline XlaState* StateOfXla(const XlaOperator& op, const xla::CallFrame& frame) {
  auto args = xla::Sized(
      xla::StateArgs{{}, frame.context, xla::Stage::kInstantiate, op.state_type_id, nullptr});
  if (op.state_type_id->value == 0 || !Succeeded(*frame.api, frame.api->state_get(&args)))
    RefuseState(op.op,
                "register its handler for two stages: jax.ffi.register_ffi_target(name, "
                "{\"instantiate\": handler, \"execute\": handler})");
  return static_cast<XlaState*>(args.state);
}

inline xla::Error* ExecuteXla(const XlaOperator& op, xla::CallFrame& frame, XlaRun run) {
  const xla::Api& api = *frame.api;
  XlaCall call{op, frame, Device{DeviceType::kCPU, 0}};
  if (op.op.needs_instance()) call.state = StateOfXla(op, frame);
  if (run == XlaRun::kOnCuda) {
    auto stream = xla::Sized(xla::StreamGetArgs{{}, frame.context, nullptr});
    if (xla::Error* error = api.stream_get(&stream)) return error;
    auto ordinal = xla::Sized(xla::DeviceOrdinalGetArgs{{}, frame.context, 0});
    if (xla::Error* error = api.device_ordinal_get(&ordinal)) return error;
    call.device = {DeviceType::kCUDA, ordinal.ordinal};
    call.stream = stream.stream;
    call.Run();
    return nullptr;
  }
  const XlaThreads threads(api, frame.context);
  if (run == XlaRun::kOnCpuLater && threads.Count() > 0) {
    auto later = std::make_unique<XlaLaterCall>(call);
    auto future = xla::Sized(xla::FutureCreateArgs{{}, nullptr});
    if (xla::Error* error = api.future_create(&future)) return error;
    frame.future = later->call.frame.future = future.future;  // nothing throws from here on
    if (!threads.Schedule(&XlaLaterCall::Run, later.get()))
      XlaLaterCall::Run(later.release());
    else
      later.release();
    return nullptr;
  }
  const int count = threads.Count();
  const auto on_threads = [&](int calls, FunctionRef<void()> work) { threads.Run(calls, work); };
  const LoopsOnHost loops(count, on_threads);
  const ScopedValue<const LoopRunner*> on_host(t_loop_runner, count > 0 ? &loops : t_loop_runner);
  call.Run();
  return nullptr;
}

OPKIT_INLINE xla::Error* HandleXla(const XlaOperator& op, xla::CallFrame& frame,
                                   XlaRun run) noexcept {
  for (xla::Extension* one = frame.extensions; one; one = one->next) {
    if (one->type != xla::ExtensionType::kMetadata) continue;
    xla::Metadata& metadata = *static_cast<xla::MetadataExtension*>(one)->metadata;
    metadata.version = xla::Sized(xla::ApiVersion{{}, xla::kMajorVersion, xla::kMinorVersion});
    metadata.traits = 0;
    if (metadata.struct_size >= sizeof metadata) metadata.state_type_id = *op.state_type_id;
    return nullptr;
  }
  return GuardBoundary(
      [&]() -> xla::Error* {
        if (frame.stage == xla::Stage::kInstantiate) return InstantiateXla(op, frame, run);
        if (frame.stage == xla::Stage::kExecute) return ExecuteXla(op, frame, run);
        return nullptr;
      },
      [&](ErrorCode code, const char* text) { return MakeXlaError(*frame.api, code, text); });
}

}}}  // namespace opkit::detail

#endif  // OPKIT_EXPORT_IMPL_XLA_IPP_
