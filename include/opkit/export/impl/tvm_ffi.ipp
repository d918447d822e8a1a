// The definitions of tvm_ffi.hpp.
#ifndef OPKIT_EXPORT_IMPL_TVM_FFI_IPP_
#define OPKIT_EXPORT_IMPL_TVM_FFI_IPP_

#include <atomic>
#include <thread>

#include "opkit/base/json/json_writer.hpp"
#include "opkit/export/host_symbol.hpp"
#include "opkit/export/tvm_ffi.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the host's functions, which the first call finds. The host has been loaded before it
// calls.
OPKIT_IMAGE_LOCAL inline const tvm_ffi::Api& TvmFfi() {
  static const tvm_ffi::Api api = [] {
    tvm_ffi::Api found{};
    const auto find = [](auto& function, const char* name) {
      void* address = FindHostSymbol(name);
      if (!address) address = FindHostSymbol(name, "libtvm_ffi.so");
      std::memcpy(&function, &address, sizeof address);
    };
    find(found.ErrorSetRaisedFromCStr, "TVMFFIErrorSetRaisedFromCStr");
    find(found.TensorFromDLPackVersioned, "TVMFFITensorFromDLPackVersioned");
    find(found.FunctionCreate, "TVMFFIFunctionCreate");
    find(found.FunctionGetGlobal, "TVMFFIFunctionGetGlobal");
    find(found.FunctionCall, "TVMFFIFunctionCall");
    find(found.StringFromByteArray, "TVMFFIStringFromByteArray");
    find(found.ObjectDecRef, "TVMFFIObjectDecRef");
    find(found.EnvGetStream, "TVMFFIEnvGetStream");
    return found;
  }();
  return api;
}

// Thrown after a function of the host has raised its own error.
struct TvmFfiRaised {};
inline void CheckTvmFfi(int status) {
  if (status != 0) throw TvmFfiRaised{};
}

// Calls call(); raises an exception in the host. Returns the status for the host.
template <class Call>
int GuardTvmFfi(Call&& call) noexcept {
  const auto guarded = [&] {
    try {
      call();
      return 0;
    } catch (const TvmFfiRaised&) {
      return -1;
    }
  };
  return GuardBoundary(guarded, [](ErrorCode code, const char* text) {
    if (TvmFfi().ErrorSetRaisedFromCStr) TvmFfi().ErrorSetRaisedFromCStr(PythonClassOf(code), text);
    return -1;
  });
}

// Objects of the host that a call owns.
class TvmFfiObjects {
 public:
  TvmFfiObjects() = default;
  TvmFfiObjects(TvmFfiObjects&&) = delete;
  ~TvmFfiObjects() {
    for (void* object : objects_) TvmFfi().ObjectDecRef(object);
  }
  void Own(void* object) { objects_.push_back(object); }
  void Own(const tvm_ffi::Any& value) {
    if (value.type_index >= tvm_ffi::kObjectBegin) Own(value.v_obj);
  }

 private:
  std::vector<void*> objects_;
};

// Calls a function that the host has registered by name.
inline tvm_ffi::Any CallTvmFfiGlobal(std::string_view name, tvm_ffi::Any* args, int32_t num_args) {
  const tvm_ffi::ByteArray text{name.data(), name.size()};
  void* function = nullptr;
  CheckTvmFfi(TvmFfi().FunctionGetGlobal(&text, &function));
  if (!function) Throw(ErrorCode::kUnsupported, "this version of tvm-ffi has no function ", name);
  TvmFfiObjects owned;
  owned.Own(function);
  tvm_ffi::Any result{};
  CheckTvmFfi(TvmFfi().FunctionCall(function, args, num_args, &result));
  return result;
}

inline bool IsTvmFfiList(const tvm_ffi::Any& value) {
  return value.type_index == tvm_ffi::kArray || value.type_index == tvm_ffi::kList;
}
// Returns the elements of a list. The host's own functions read it, because the layout of a list is
// not the same in all versions.
inline std::vector<tvm_ffi::Any> TvmFfiElements(const tvm_ffi::Any& list, TvmFfiObjects& owned) {
  const bool is_array = list.type_index == tvm_ffi::kArray;
  tvm_ffi::Any args[2] = {list, {}};
  const tvm_ffi::Any size = CallTvmFfiGlobal(is_array ? "ffi.ArraySize" : "ffi.ListSize", args, 1);
  std::vector<tvm_ffi::Any> elements;
  for (int64_t i = 0; i < size.v_int64; ++i) {
    args[1].type_index = tvm_ffi::kInt;
    args[1].v_int64 = i;
    elements.push_back(
        CallTvmFfiGlobal(is_array ? "ffi.ArrayGetItem" : "ffi.ListGetItem", args, 2));
    owned.Own(elements.back());
  }
  return elements;
}

// Returns null for a value that is no tensor.
inline const dlpack::DLTensor* TvmFfiTensor(const tvm_ffi::Any& value) {
  if (value.type_index == tvm_ffi::kDLTensorPtr)
    return static_cast<const dlpack::DLTensor*>(value.v_ptr);
  if (value.type_index == tvm_ffi::kTensor)
    return reinterpret_cast<const dlpack::DLTensor*>(value.v_obj + 1);
  return nullptr;
}
// Returns the text of a string; false for another value.
inline bool TvmFfiText(const tvm_ffi::Any& value, std::string_view& text) {
  if (value.type_index == tvm_ffi::kSmallStr) {
    text = {value.v_bytes, value.small_str_len};
  } else if (value.type_index == tvm_ffi::kRawStr) {
    text = value.v_c_str;
  } else if (value.type_index == tvm_ffi::kStr) {
    const auto& bytes = *reinterpret_cast<const tvm_ffi::ByteArray*>(value.v_obj + 1);
    text = {bytes.data, bytes.size};
  } else {
    return false;
  }
  return true;
}

[[noreturn]] OPKIT_COLD inline void ThrowNoTvmFfiAttribute(const OpSchema& schema,
                                                           const AttributeSchema& declared,
                                                           int32_t type) {
  Throw(ErrorCode::kTypeMismatch, "argument '", declared.name, "' of ", schema.name(),
        " is a value of tvm-ffi's type ", type, ", expected ",
        declared.type ? ToString(*declared.type) : "a number, bool, string, tensor or list");
}

inline Tensor CopyOfTvmFfiTensor(const dlpack::DLTensor& tensor) {
  Tensor view;
  ViewForeign(FromDLTensor(tensor), view);
  return view.Contiguous();
}

// Returns an attribute's value, as the schema declares it.
inline Attribute TvmFfiAttribute(const OpSchema& schema, const AttributeSchema& declared,
                                 const tvm_ffi::Any& value) {
  std::string_view text;
  if (value.type_index == tvm_ffi::kInt) return FitAttribute(&declared, Attribute(value.v_int64));
  if (value.type_index == tvm_ffi::kBool)
    return FitAttribute(&declared, Attribute(value.v_int64 != 0));
  if (value.type_index == tvm_ffi::kFloat) return Attribute(value.v_float64);
  if (TvmFfiText(value, text)) return Attribute(std::string(text));
  if (const dlpack::DLTensor* tensor = TvmFfiTensor(value))
    return Attribute(CopyOfTvmFfiTensor(*tensor));
  if (value.type_index == tvm_ffi::kShape) {
    const auto& cell = *reinterpret_cast<const tvm_ffi::ShapeCell*>(value.v_obj + 1);
    return FitAttribute(&declared,
                        Attribute(std::vector<int64_t>(cell.data, cell.data + cell.size)));
  }
  if (!IsTvmFfiList(value)) ThrowNoTvmFfiAttribute(schema, declared, value.type_index);

  TvmFfiObjects owned;
  auto values = MakeIntrusive<Attribute::Values>();
  AttributeType type = AttributeType::kInts;
  bool has_floats = false;
  const std::vector<tvm_ffi::Any> elements = TvmFfiElements(value, owned);
  for (const tvm_ffi::Any& element : elements) has_floats |= element.type_index == tvm_ffi::kFloat;
  for (const tvm_ffi::Any& element : elements) {
    const bool is_number = element.type_index == tvm_ffi::kInt;
    AttributeType own = AttributeType::kInts;
    if (element.type_index == tvm_ffi::kFloat || (is_number && has_floats)) {
      own = AttributeType::kFloats;  // [1, 2.5] has integers too
      values->floats.push_back(is_number ? static_cast<double>(element.v_int64)
                                         : element.v_float64);
    } else if (is_number || element.type_index == tvm_ffi::kBool) {
      own = is_number ? AttributeType::kInts : AttributeType::kBools;
      values->ints.push_back(element.v_int64);
    } else if (TvmFfiText(element, text)) {
      own = AttributeType::kStrings;
      values->strings.emplace_back(text);
    } else if (const dlpack::DLTensor* tensor = TvmFfiTensor(element)) {
      own = AttributeType::kTensors;
      values->tensors.push_back(CopyOfTvmFfiTensor(*tensor));
    } else {
      ThrowNoTvmFfiAttribute(schema, declared, element.type_index);
    }
    if (&element != elements.data() && own != type)
      Throw(ErrorCode::kTypeMismatch, "argument '", declared.name, "' of ", schema.name(),
            " is a list of values of several types");
    type = own;
  }
  return FitAttribute(&declared, Attribute(type, std::move(values)));
}

// Adds a value to the key of a call. Returns false for a value that a key cannot hold.
inline bool AddTvmFfiKey(const tvm_ffi::Any& value, CallKey& key) {
  std::string_view text;
  if (value.type_index <= tvm_ffi::kFloat) {
    key.Add(value.type_index);
    key.Add(value.type_index == tvm_ffi::kNone ? int64_t{0} : value.v_int64);
  } else if (TvmFfiText(value, text)) {
    key.Add(int32_t{tvm_ffi::kStr});
    key.AddText(text);
  } else if (value.type_index == tvm_ffi::kShape) {
    const auto& cell = *reinterpret_cast<const tvm_ffi::ShapeCell*>(value.v_obj + 1);
    key.Add(value.type_index);
    key.Add(cell.size);
    key.AddBytes(cell.data, cell.size * sizeof *cell.data);
  } else if (IsTvmFfiList(value)) {
    TvmFfiObjects owned;
    const std::vector<tvm_ffi::Any> elements = TvmFfiElements(value, owned);
    key.Add(value.type_index);
    key.Add(elements.size());
    for (const tvm_ffi::Any& element : elements)
      if (!AddTvmFfiKey(element, key)) return false;
  } else {
    return false;
  }
  return true;
}

inline Arguments TvmFfiArguments(const OpSchema& schema, std::span<const tvm_ffi::Any> values) {
  const std::vector<AttributeSchema>& declared = schema.attributes();
  if (values.size() > declared.size()) {
    std::vector<std::string> names;
    for (const AttributeSchema& attribute : declared) names.push_back(attribute.name);
    Throw(ErrorCode::kInvalidArgument, schema.name(), " has ", declared.size(), " attributes ",
          names, ", but ", values.size(), " values are given for them");
  }
  Arguments args;
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i].type_index != tvm_ffi::kNone)
      args.Set(declared[i].name, TvmFfiAttribute(schema, declared[i], values[i]));
  return args;
}

// The parts of a call's arguments.
struct TvmFfiCall {
  std::span<const tvm_ffi::Any> inputs, attributes, outputs;
  std::vector<tvm_ffi::Any> elements;  // of a list of inputs
  TvmFfiObjects owned;
};

// Splits the arguments. With `only_tensors` there are no attributes between inputs and outputs.
inline void SplitTvmFfiCall(const OpSchema& schema, std::span<const tvm_ffi::Any> args,
                            bool only_tensors, TvmFfiCall& call) {
  size_t inputs = 0;
  const auto most = static_cast<size_t>(schema.max_inputs());
  if (most > 1 && !args.empty() && IsTvmFfiList(args[0]) &&
      schema.min_inputs() != schema.max_inputs()) {
    call.elements = TvmFfiElements(args[0], call.owned);
    call.inputs = call.elements;
    inputs = 1;
  } else {
    while (inputs < args.size() && inputs < most &&
           (TvmFfiTensor(args[inputs]) || args[inputs].type_index == tvm_ffi::kNone))
      ++inputs;
    call.inputs = args.first(inputs);
  }
  const std::span<const tvm_ffi::Any> rest = args.subspan(inputs);
  if (inputs < static_cast<size_t>(schema.min_inputs()) && !rest.empty() && call.elements.empty())
    Throw(ErrorCode::kTypeMismatch, "argument ", inputs, " of ", schema.name(),
          " is no tensor, but the operator takes ", schema.expected_inputs(),
          " tensors before its attributes");
  for (const tvm_ffi::Any& input : call.inputs)
    if (!TvmFfiTensor(input) && input.type_index != tvm_ffi::kNone)
      Throw(ErrorCode::kTypeMismatch, "the list of inputs of ", schema.name(),
            " has an element that is no tensor");
  size_t attributes = rest.size();
  while (attributes > 0 && TvmFfiTensor(rest[attributes - 1])) --attributes;
  // A tensor may also be an attribute. Then outputs can only follow all attributes.
  const size_t declared = schema.attributes().size();
  for (const AttributeSchema& attribute : schema.attributes())
    if (attribute.type == AttributeType::kTensor) attributes = (std::min)(rest.size(), declared);
  if (only_tensors && attributes > 0)
    Throw(ErrorCode::kInvalidArgument, "argument ", inputs, " of a function of ", schema.name(),
          " is no tensor; its attributes were given when the function was made");
  call.attributes = rest.first(attributes);
  call.outputs = rest.subspan(attributes);
}

inline std::vector<int> TvmFfiPresent(std::span<const tvm_ffi::Any> inputs) {
  std::vector<int> present;
  for (const tvm_ffi::Any& input : inputs) present.push_back(input.type_index != tvm_ffi::kNone);
  return present;
}
// Returns the device of the first input.
inline Device TvmFfiDevice(std::span<const tvm_ffi::Any> inputs) {
  for (const tvm_ffi::Any& input : inputs)
    if (const dlpack::DLTensor* tensor = TvmFfiTensor(input))
      return {static_cast<DeviceType>(tensor->device.device_type), tensor->device.device_id};
  return {};
}

// Makes an object of the host from a tensor.
inline tvm_ffi::Any TvmFfiResult(const Tensor& tensor) {
  dlpack::DLManagedTensorVersioned* managed = ToDLPackVersioned(tensor);
  void* object = nullptr;
  if (TvmFfi().TensorFromDLPackVersioned(managed, 0, 0, &object) != 0) {
    managed->deleter(managed);
    throw TvmFfiRaised{};
  }
  tvm_ffi::Any result{};
  result.type_index = tvm_ffi::kTensor;
  result.v_ptr = object;
  return result;
}

inline void RunForTvmFfi(ReadyOperator& op, const TvmFfiCall& call, tvm_ffi::Any* result) {
  for (size_t i = 0; i < call.inputs.size(); ++i)
    if (const dlpack::DLTensor* tensor = TvmFfiTensor(call.inputs[i]))
      op.SetInput(static_cast<int>(i), FromDLTensor(*tensor));
  if (!call.outputs.empty() && call.outputs.size() != static_cast<size_t>(op.num_outputs()))
    Throw(ErrorCode::kInvalidArgument, op.schema().name(), " has ", op.num_outputs(),
          " outputs, but ", call.outputs.size(), " tensors are given for them");
  for (size_t o = 0; o < call.outputs.size(); ++o)
    op.SetOutput(static_cast<int>(o), FromDLTensor(*TvmFfiTensor(call.outputs[o])));
  const Device device = op.device();
  if (IsHostAccessible(device.type))
    op.Run();
  else
    op.Issue(TvmFfi().EnvGetStream(static_cast<int32_t>(device.type), device.index));

  *result = {};
  if (!call.outputs.empty()) return;
  if (op.num_outputs() == 1) {
    *result = TvmFfiResult(op.TakeOutput(0));
    return;
  }
  TvmFfiObjects owned;
  std::vector<tvm_ffi::Any> tensors;
  for (int o = 0; o < op.num_outputs(); ++o) {
    tensors.push_back(TvmFfiResult(op.TakeOutput(o)));
    owned.Own(tensors.back());
  }
  *result = CallTvmFfiGlobal("ffi.Array", tensors.data(), static_cast<int32_t>(tensors.size()));
}

OPKIT_INLINE int CallFromTvmFfi(const ExportedOperator& op, const tvm_ffi::Any* args,
                                int32_t num_args, tvm_ffi::Any* result) noexcept {
  return GuardTvmFfi([&] {
    const OpSchema& schema = op.schema();
    if (schema.is_stateful())
      RefuseState(op, StrCat("call a function that ", op.name(), "_create() returns").c_str());
    TvmFfiCall call;
    SplitTvmFfiCall(schema, {args, Index(num_args)}, false, call);
    const Device device = TvmFfiDevice(call.inputs);
    const auto make = [&] {
      return std::make_unique<ReadyOperator>(op.name(), TvmFfiPresent(call.inputs),
                                             TvmFfiArguments(schema, call.attributes), device);
    };
    CallKey key;
    key.Add(device.type);
    key.Add(device.index);
    for (const tvm_ffi::Any& input : call.inputs) key.Add(input.type_index != tvm_ffi::kNone);
    key.Add(char{2});
    bool keeps = true;
    for (const tvm_ffi::Any& value : call.attributes) keeps = keeps && AddTvmFfiKey(value, key);
    if (!keeps) {  // a tensor is an attribute
      RunForTvmFfi(*make(), call, result);
      return;
    }
    const Lease lease = KeptOperator(op, key, make);
    RunForTvmFfi(*lease, call, result);
  });
}

// The operator behind a function of the host.
struct OPKIT_IMAGE_LOCAL TvmFfiInstance {
  const ExportedOperator& op;
  Arguments args;
  std::atomic<std::thread::id> holder{};  // the thread that is in a call
  std::mutex mutex;                       // guards what follows
  std::vector<int> present;
  Device device;
  std::unique_ptr<ReadyOperator> ready;  // made by the first call

  void Call(std::span<const tvm_ffi::Any> given, tvm_ffi::Any* result) {
    TvmFfiCall call;
    SplitTvmFfiCall(op.schema(), given, true, call);
    std::vector<int> now = TvmFfiPresent(call.inputs);
    const Device on = TvmFfiDevice(call.inputs);
    if (holder.load() == std::this_thread::get_id()) {  // the operator calls Python, which calls it
      if (op.needs_instance())
        Throw(ErrorCode::kFailedPrecondition, "operator ", op.name(),
              " keeps state between its runs, and is called while a run of it waits for this call");
      RunForTvmFfi(*std::make_unique<ReadyOperator>(op.name(), now, args, on), call, result);
      return;
    }
    const std::lock_guard lock(mutex);
    const struct Holding {
      std::atomic<std::thread::id>& holder;
      explicit Holding(std::atomic<std::thread::id>& of) : holder(of) {
        holder.store(std::this_thread::get_id());
      }
      ~Holding() { holder.store({}); }
    } holding(holder);
    if (!ready || now != present || on != device) {
      if (ready && op.needs_instance())
        Throw(ErrorCode::kInvalidArgument, "a function of ", op.name(),
              " keeps the state of its calls, which all need the same inputs and device; make "
              "another function by ",
              op.name(), "_create()");
      ready = std::make_unique<ReadyOperator>(op.name(), now, args, on);
      present = std::move(now);
      device = on;
    }
    const Lease lease(*ready, nullptr, nullptr);
    RunForTvmFfi(*lease, call, result);
  }
};

OPKIT_INLINE int CreateForTvmFfi(const ExportedOperator& op, const tvm_ffi::Any* args,
                                 int32_t num_args, tvm_ffi::Any* result) noexcept {
  return GuardTvmFfi([&] {
    const OpSchema& schema = op.schema();
    Arguments given = TvmFfiArguments(schema, {args, Index(num_args)});
    if (const std::string why = schema.VerifyArguments(given); !why.empty())
      Throw(ErrorCode::kInvalidArgument, why);
    std::unique_ptr<TvmFfiInstance> instance(
        new TvmFfiInstance{op, std::move(given), {}, {}, {}, {}, nullptr});
    const tvm_ffi::SafeCall call = [](void* self, const tvm_ffi::Any* values, int32_t count,
                                      tvm_ffi::Any* out) {
      return GuardTvmFfi([&] {
        static_cast<TvmFfiInstance*>(self)->Call({values, Index(count)}, out);
      });
    };
    void* function = nullptr;
    CheckTvmFfi(TvmFfi().FunctionCreate(
        instance.get(), call, [](void* self) { delete static_cast<TvmFfiInstance*>(self); },
        &function));
    instance.release();
    *result = {};
    result->type_index = tvm_ffi::kFunction;
    result->v_ptr = function;
  });
}

inline void SetTvmFfiText(std::string_view text, tvm_ffi::Any* result) {
  const tvm_ffi::ByteArray bytes{text.data(), text.size()};
  CheckTvmFfi(TvmFfi().StringFromByteArray(&bytes, result));
}
inline std::string TvmFfiNameOf(const std::vector<ValueSchema>& values, const char* kind, int i) {
  return Index(i) < values.size() && !values[Index(i)].name.empty() ? values[Index(i)].name
                                                                    : StrCat(kind, i);
}

OPKIT_INLINE int DocForTvmFfi(const ExportedOperator& op, tvm_ffi::Any* result) noexcept {
  return GuardTvmFfi([&] {
    const OpSchema& schema = op.schema();
    std::string text = schema.doc();
    const auto add = [&](const std::string& name, const std::string& what, const std::string& doc) {
      text += StrCat("\n  ", name, " (", what, ")", doc.empty() ? "" : ": ", doc);
    };
    text += "\n\nArguments:";
    for (const ValueSchema& input : schema.inputs()) add(input.name, "input", input.doc);
    for (const AttributeSchema& attribute : schema.attributes())
      add(attribute.name,
          StrCat(attribute.type ? ToString(*attribute.type) : "any",
                 attribute.default_value ? StrCat(" = ", ToString(*attribute.default_value)) : ""),
          attribute.doc);
    for (const ValueSchema& output : schema.outputs())
      add(output.name, "output, returned if it is not given", output.doc);
    SetTvmFfiText(text, result);
  });
}

// Returns a type in tvm-ffi's JSON form.
inline std::string TvmFfiTypeOf(std::optional<AttributeType> type) {
  constexpr const char* kNames[] = {"int", "float", "bool", "ffi.String", "ffi.Tensor"};
  if (!type) return R"({"type":"Any"})";
  const int number = static_cast<int>(*type);
  const std::string element = StrCat(R"({"type":")", kNames[number % 5], R"("})");
  return number < 5 ? element : StrCat(R"({"type":"ffi.Array","args":[)", element, "]}");
}

inline void WriteTvmFfiDefault(JsonWriter& json, const AttributeSchema& attribute) {
  if (!attribute.default_value || !attribute.default_value->values().tensors.empty()) {
    json.Item() += "null";
    return;
  }
  const Attribute& value = *attribute.default_value;
  const Attribute::Values& all = value.values();
  if (value.is_list()) json.BeginArray();
  const bool is_bool =
      value.type() == AttributeType::kBool || value.type() == AttributeType::kBools;
  for (const int64_t number : all.ints) is_bool ? json.Value(number != 0) : json.Value(number);
  for (const double number : all.floats) json.Value(number);
  for (const std::string& text : all.strings) json.Value(text);
  if (value.is_list()) json.EndArray();
}

OPKIT_INLINE int MetadataForTvmFfi(const ExportedOperator& op, tvm_ffi::Any* result) noexcept {
  return GuardTvmFfi([&] {
    const OpSchema& schema = op.schema();
    const std::string tensor = TvmFfiTypeOf(AttributeType::kTensor);
    const bool is_variadic = schema.max_inputs() > 64;
    const int inputs = is_variadic ? 1 : schema.max_inputs();
    std::vector<std::string> names, types;
    for (int i = 0; i < inputs; ++i) {
      names.push_back(TvmFfiNameOf(schema.inputs(), "input", i));
      types.push_back(is_variadic ? TvmFfiTypeOf(AttributeType::kTensors)
                      : i < schema.min_inputs()
                          ? tensor
                          : StrCat(R"({"type":"Optional","args":[)", tensor, "]}"));
    }
    for (const AttributeSchema& attribute : schema.attributes()) {
      names.push_back(attribute.name);
      types.push_back(TvmFfiTypeOf(attribute.type));
    }
    const std::string returned =
        schema.CalculateOutput(inputs) == 1 ? tensor : TvmFfiTypeOf(AttributeType::kTensors);
    std::string params;
    for (const std::string& type : types) params += StrCat(params.empty() ? "" : ",", type);
    // Readers before 0.1.16 take "args", later ones "named_args".
    const std::string type_schema =
        StrCat(R"({"type":"ffi.Function","args":[)", returned, params.empty() ? "" : ",", params,
               R"(],"named_args":{"return":[)", returned, R"(],"params":[)", params, "]}}");
    std::string text;
    JsonWriter json(text, JsonWriter::kCompact);
    json.BeginObject().Member("type_schema", type_schema).Member("arg_names", names);
    json.Key("arg_defaults").BeginArray();  // of the last arguments
    for (const AttributeSchema& attribute : schema.attributes())
      WriteTvmFfiDefault(json, attribute);
    json.EndArray().EndObject();
    SetTvmFfiText(text, result);
  });
}

}}}  // namespace opkit::detail

#endif  // OPKIT_EXPORT_IMPL_TVM_FFI_IPP_
