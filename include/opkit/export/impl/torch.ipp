// The definitions of torch.hpp. The declarations of torch's functions follow torch 2.10:
// torch/csrc/stable/c/shim.h and torch/csrc/inductor/aoti_torch/c/shim.h.
#ifndef OPKIT_EXPORT_IMPL_TORCH_IPP_
#define OPKIT_EXPORT_IMPL_TORCH_IPP_

#include <cmath>
#include <list>

#include "opkit/engine/parallel_for.hpp"
#include "opkit/export/host_symbol.hpp"
#include "opkit/export/torch.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A tensor, string, list or library of torch.
using TorchHandle = void*;
// Torch's numbers of devices.
inline constexpr int32_t kTorchCpu = 0, kTorchCuda = 1;

// Torch's functions. Each returns 0 for success.
struct OPKIT_IMAGE_LOCAL TorchApi {
  int32_t (*init_fragment)(const char* domain, const char* file, uint32_t line, TorchHandle*);
  int32_t (*define)(TorchHandle library, const char* schema);
  int32_t (*init_impl)(const char* domain, const char* key, const char* file, uint32_t line,
                       TorchHandle*);
  int32_t (*implement)(TorchHandle library, const char* op, TorchKernel, uint64_t version);
  int32_t (*delete_library)(TorchHandle library);
  int32_t (*get_data)(TorchHandle tensor, void**);
  int32_t (*get_rank)(TorchHandle tensor, int64_t*);
  int32_t (*get_sizes)(TorchHandle tensor, int64_t**);
  int32_t (*get_strides)(TorchHandle tensor, int64_t**);
  int32_t (*get_dtype)(TorchHandle tensor, int32_t*);
  int32_t (*get_device_type)(TorchHandle tensor, int32_t*);
  int32_t (*get_device_index)(TorchHandle tensor, int32_t*);
  int32_t (*empty)(int64_t rank, const int64_t* sizes, const int64_t* strides, int32_t dtype,
                   int32_t device_type, int32_t device_index, TorchHandle*);
  int32_t (*delete_tensor)(TorchHandle tensor);
  int32_t (*new_list)(size_t size, TorchHandle*);
  int32_t (*list_size)(TorchHandle list, size_t*);
  int32_t (*list_item)(TorchHandle list, size_t index, TorchValue*);
  int32_t (*list_add)(TorchHandle list, TorchValue);
  int32_t (*delete_list)(TorchHandle list);
  int32_t (*string_size)(TorchHandle string, size_t*);
  int32_t (*string_data)(TorchHandle string, const char**);
  int32_t (*delete_string)(TorchHandle string);
  int32_t (*parallel_for)(int64_t begin, int64_t end, int64_t grain,
                          void (*body)(int64_t begin, int64_t end, void* data), void* data);
  int32_t (*num_threads)(uint32_t*);

  // Returns null if the process has not loaded torch. Throws kUnsupported if torch is too old.
  static const TorchApi* Find() {
    static const TorchApi* found = nullptr;
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    if (!found && FindHostSymbol("aoti_torch_library_init_fragment", g_torch_library))
      found = new TorchApi;
    return found;
  }

 private:
  TorchApi() {
    Get("aoti_torch_library_init_fragment", init_fragment), Get("aoti_torch_library_def", define);
    Get("aoti_torch_library_init_impl", init_impl), Get("torch_library_impl", implement);
    Get("aoti_torch_delete_library_object", delete_library);
    Get("aoti_torch_get_data_ptr", get_data), Get("aoti_torch_get_dim", get_rank);
    Get("aoti_torch_get_sizes", get_sizes), Get("aoti_torch_get_strides", get_strides);
    Get("aoti_torch_get_dtype", get_dtype), Get("aoti_torch_get_device_type", get_device_type);
    Get("aoti_torch_get_device_index", get_device_index);
    Get("aoti_torch_empty_strided", empty);
    Get("aoti_torch_delete_tensor_object", delete_tensor);
    Get("torch_new_list_reserve_size", new_list), Get("torch_list_size", list_size);
    Get("torch_list_get_item", list_item), Get("torch_list_push_back", list_add);
    Get("torch_delete_list", delete_list), Get("torch_string_length", string_size);
    Get("torch_string_c_str", string_data), Get("torch_delete_string", delete_string);
    Get("torch_parallel_for", parallel_for), Get("torch_get_num_threads", num_threads);
  }
  template <class Function>
  static void Get(const char* name, Function& to) {
    to = reinterpret_cast<Function>(FindHostSymbol(name, g_torch_library));
    if (!to)
      Throw(ErrorCode::kUnsupported, g_torch_library, " has no function ", name,
            "; the export needs PyTorch 2.10 or later");
  }
};

// Throws kOperatorFailed if torch's function failed.
inline void CheckTorch(int32_t status, const char* what) {
  if (status) Throw(ErrorCode::kOperatorFailed, "PyTorch failed to ", what);
}

// c10::ScalarType's numbers.
struct TorchTypeRow {
  DType dtype;
  int32_t number;
};
inline constexpr TorchTypeRow kTorchTypes[] = {
    {DType::kUInt8, 0},     {DType::kInt8, 1},        {DType::kInt16, 2},   {DType::kInt32, 3},
    {DType::kInt64, 4},     {DType::kFloat16, 5},     {DType::kFloat32, 6}, {DType::kFloat64, 7},
    {DType::kComplex64, 9}, {DType::kComplex128, 10}, {DType::kBool, 11},   {DType::kBFloat16, 15},
    {DType::kUInt16, 27},   {DType::kUInt32, 28},     {DType::kUInt64, 29}};

inline std::string TorchLiteral(const Attribute& value) {
  const Attribute::Values& values = value.values();
  std::string text;
  const auto add = [&](const std::string& element) {
    text += (text.empty() ? "" : ", ") + element;
  };
  const bool bools = value.type() == AttributeType::kBool || value.type() == AttributeType::kBools;
  for (const int64_t number : values.ints)
    add(bools ? (number ? "True" : "False") : StrCat(number));
  for (const double number : values.floats) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.17g", number);
    for (int precision = 1; precision < 17; ++precision) {  // the shortest that reads the same
      char shorter[32];
      std::snprintf(shorter, sizeof shorter, "%.*g", precision, number);
      if (std::strtod(shorter, nullptr) != number) continue;
      std::memcpy(digits, shorter, sizeof digits);
      break;
    }
    std::string element = digits;
    if (element.find_first_of(".e") == std::string::npos) element += '.';
    add(element);
  }
  for (const std::string& string : values.strings) {
    std::string quoted = "\"";
    for (const char c : string) {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
    add(quoted + '"');
  }
  return value.is_list() ? "[" + text + "]" : text;
}
// True if torch's notation can write the default. It has no lists of bools or of strings.
inline bool HasTorchLiteral(const Attribute& value) {
  if (value.type() == AttributeType::kBools || value.type() == AttributeType::kStrings)
    return false;
  for (const double number : value.values().floats)
    if (!std::isfinite(number)) return false;
  for (const std::string& string : value.values().strings)
    for (const char c : string)
      if (static_cast<unsigned char>(c) < 32) return false;
  return value.values().tensors.empty();
}

// Returns the name of a parameter. A keyword of Python, or of torch's notation, gets an underscore.
inline std::string TorchNameOf(const std::string& name) {
  static constexpr std::string_view kKeywords[] = {
      "Ellipsis", "False",  "None",    "NoneType", "True",     "and",    "as",   "assert",
      "async",    "await",  "break",   "class",    "continue", "def",    "del",  "elif",
      "else",     "except", "finally", "for",      "from",     "global", "if",   "import",
      "in",       "is",     "lambda",  "nonlocal", "not",      "or",     "pass", "raise",
      "return",   "try",    "while",   "with",     "yield"};
  for (const std::string_view keyword : kKeywords)
    if (name == keyword) return name + '_';
  return name;
}
// True if an operator with any number of outputs returns one list.
inline bool ReturnsTorchList(const OpSchema& schema) {
  return schema.min_outputs() != schema.max_outputs();
}

OPKIT_INLINE std::string TorchSchemaOf(const ExportedOperator& op,
                                       std::vector<TorchParameter>* parameters) {
  const OpSchema& schema = op.schema();
  if (op.needs_instance())
    Throw(ErrorCode::kUnsupported, "operator ", op.name(),
          " keeps state between its runs, and torch's operators have no instance that could own "
          "it; use the operator through opkit's Python package or tvm-ffi");
  std::vector<TorchParameter> own;
  std::vector<TorchParameter>& list = parameters ? *parameters : own;
  std::string text = StrCat(op.name(), "(");
  bool defaults = false;  // a parameter before had a default
  const auto add = [&](const std::string& parameter) {
    text += (text.back() == '(' ? "" : ", ") + parameter;
  };
  const auto& inputs = schema.inputs();
  const bool any_number = schema.max_inputs() > static_cast<int>(inputs.size());
  if (any_number && schema.max_inputs() != schema.min_inputs()) {
    add("Tensor[] inputs");
    list.push_back({TorchParameter::kTensors, false});
  } else {
    for (int i = 0; i < schema.max_inputs(); ++i) {
      const std::string name = Index(i) < inputs.size() && !inputs[Index(i)].name.empty()
                                   ? inputs[Index(i)].name
                                   : StrCat("input", i);
      const bool optional = i >= schema.min_inputs();
      add(StrCat(optional ? "Tensor? " : "Tensor ", TorchNameOf(name), optional ? "=None" : ""));
      defaults |= optional;
      list.push_back({TorchParameter::kTensor, optional});
    }
  }
  bool keywords = false;
  for (const AttributeSchema& attribute : schema.attributes()) {
    if (!attribute.type || attribute.name.empty()) continue;
    if (defaults && attribute.required) keywords = true;
    defaults |= !attribute.required;
  }
  if (keywords) add("*");
  for (const AttributeSchema& attribute : schema.attributes()) {
    if (!attribute.type) continue;  // of any type: torch has no such parameter
    constexpr const char* kTypes[] = {"int", "float", "bool", "str", "Tensor"};
    const int number = static_cast<int>(*attribute.type);
    std::string type = kTypes[number % 5];
    if (number >= 5) type += "[]";
    const bool literal = attribute.default_value && HasTorchLiteral(*attribute.default_value);
    const bool optional = !attribute.required && !literal;
    add(StrCat(type, optional ? "? " : " ", TorchNameOf(attribute.name),
               optional  ? std::string("=None")
               : literal ? "=" + TorchLiteral(*attribute.default_value)
                         : std::string()));
    list.push_back({TorchParameter::kAttribute, optional, &attribute});
  }
  const int outputs = schema.min_outputs();
  if (ReturnsTorchList(schema)) return text + ") -> Tensor[]";
  if (outputs == 1) return text + ") -> Tensor";
  text += ") -> (";
  for (int o = 0; o < outputs; ++o) text += o ? ", Tensor" : "Tensor";
  return text + ")";
}

// Objects of torch that a call owns.
struct OPKIT_IMAGE_LOCAL TorchObjects {
  const TorchApi& api;
  std::vector<TorchHandle> tensors, lists, strings;

  explicit TorchObjects(const TorchApi& of) : api(of) {}
  TorchObjects(TorchObjects&&) = delete;
  ~TorchObjects() {
    for (const TorchHandle tensor : tensors) api.delete_tensor(tensor);
    for (const TorchHandle list : lists) api.delete_list(list);
    for (const TorchHandle string : strings) api.delete_string(string);
  }
};

// The arguments of a call, which the kernel owns.
class OPKIT_IMAGE_LOCAL TorchArguments {
 public:
  TorchArguments(const TorchApi& api, const TorchOperator& op, TorchValue* stack, uint64_t count)
      : api_(api), owned_(api) {
    // Takes everything first: whatever is thrown later, nothing leaks.
    arguments_.reserve(op.parameters->size());
    for (uint64_t i = 0; i < count && i < op.parameters->size(); ++i) {
      const TorchParameter& parameter = (*op.parameters)[i];
      Argument argument{&parameter, true, stack[i], {}};
      if (parameter.optional) {
        auto* const boxed = reinterpret_cast<TorchValue*>(stack[i]);
        argument.given = boxed;
        if (boxed) argument.value = *boxed;
        delete boxed;
      }
      if (argument.given) Own(argument);
      arguments_.push_back(argument);
    }
    for (Argument& argument : arguments_) {
      if (argument.given && IsList(*argument.parameter)) ReadItems(argument);
      if (argument.parameter->kind == TorchParameter::kTensor) {
        present_.push_back(argument.given);
        if (argument.given) tensors_.push_back(Handle(argument.value));
      } else if (argument.parameter->kind == TorchParameter::kTensors) {
        present_.insert(present_.end(), argument.items.size(), 1);
        for (const TorchValue item : argument.items) tensors_.push_back(Handle(item));
      }
    }
    while (!present_.empty() && !present_.back()) present_.pop_back();
  }

  const std::vector<TorchHandle>& tensors() const { return tensors_; }
  const std::vector<int>& present() const { return present_; }

  // Adds the attributes to the key of the call. Returns false for tensors, whose elements it does
  // not add.
  bool AddAttributes(CallKey& key) const {
    for (const Argument& argument : arguments_) {
      if (argument.parameter->kind != TorchParameter::kAttribute) continue;
      key.Add(argument.given);
      if (!argument.given) continue;
      const AttributeType element = ElementOf(*argument.parameter);
      if (element == AttributeType::kTensor) return false;
      const bool is_list = IsList(*argument.parameter);
      key.Add(is_list ? argument.items.size() : size_t{1});
      const std::span<const TorchValue> values =
          is_list ? std::span(argument.items) : std::span(&argument.value, 1);
      for (const TorchValue value : values)
        if (element == AttributeType::kString)
          key.AddText(Text(value));
        else
          key.Add(value);
    }
    return true;
  }
  Arguments Attributes() const {
    Arguments args;
    for (const Argument& argument : arguments_) {
      if (argument.parameter->kind != TorchParameter::kAttribute || !argument.given) continue;
      const AttributeSchema& declared = *argument.parameter->attribute;
      args.Set(declared.name, FitAttribute(&declared, AttributeOf(argument)));
    }
    return args;
  }

  ForeignTensor Tensor(TorchHandle handle) const {
    ForeignTensor tensor;
    int64_t rank = 0, *sizes = nullptr, *strides = nullptr;
    int32_t dtype = 0, type = 0, index = 0;
    CheckTorch(api_.get_data(handle, &tensor.data), "give a tensor's data");
    CheckTorch(api_.get_rank(handle, &rank), "give a tensor's rank");
    CheckTorch(api_.get_sizes(handle, &sizes), "give a tensor's sizes");
    CheckTorch(api_.get_strides(handle, &strides), "give a tensor's strides");
    CheckTorch(api_.get_dtype(handle, &dtype), "give a tensor's dtype");
    CheckTorch(api_.get_device_type(handle, &type), "give a tensor's device");
    CheckTorch(api_.get_device_index(handle, &index), "give a tensor's device");
    for (const TorchTypeRow& row : kTorchTypes)
      if (row.number == dtype) tensor.dtype = row.dtype;
    if (tensor.dtype == DType::kUndefined)
      Throw(ErrorCode::kUnsupported, "torch's scalar type ", dtype, " is not a dtype of opkit");
    if (type != kTorchCpu && type != kTorchCuda)
      Throw(ErrorCode::kUnsupported, "torch's device type ", type, "; expected cpu or cuda");
    tensor.device = {type == kTorchCuda ? DeviceType::kCUDA : DeviceType::kCPU,
                     type == kTorchCuda ? index : 0};
    tensor.rank = static_cast<int>(rank), tensor.shape = sizes, tensor.strides = strides;
    return tensor;
  }

 private:
  static TorchHandle Handle(TorchValue value) { return reinterpret_cast<TorchHandle>(value); }

  struct Argument {
    const TorchParameter* parameter;
    bool given;
    TorchValue value;
    std::vector<TorchValue> items;  // of a list
  };

  static bool IsList(const TorchParameter& parameter) {
    return parameter.kind == TorchParameter::kTensors ||
           (parameter.attribute && *parameter.attribute->type >= AttributeType::kInts);
  }
  // Returns the type of a value, or of each item of a list.
  static AttributeType ElementOf(const TorchParameter& parameter) {
    if (!parameter.attribute) return AttributeType::kTensor;
    return static_cast<AttributeType>(static_cast<int>(*parameter.attribute->type) % 5);
  }
  void Own(const Argument& argument) {
    if (IsList(*argument.parameter))
      owned_.lists.push_back(Handle(argument.value));
    else
      OwnElement(ElementOf(*argument.parameter), argument.value);
  }
  void OwnElement(AttributeType type, TorchValue value) {
    if (type == AttributeType::kTensor) owned_.tensors.push_back(Handle(value));
    if (type == AttributeType::kString) owned_.strings.push_back(Handle(value));
  }
  void ReadItems(Argument& argument) {
    const TorchHandle list = Handle(argument.value);
    size_t size = 0;
    CheckTorch(api_.list_size(list, &size), "give a list's size");
    argument.items.resize(size);
    for (size_t i = 0; i < size; ++i) {
      CheckTorch(api_.list_item(list, i, &argument.items[i]), "give an item of a list");
      OwnElement(ElementOf(*argument.parameter), argument.items[i]);
    }
  }
  std::string_view Text(TorchValue string) const {
    size_t size = 0;
    const char* data = nullptr;
    CheckTorch(api_.string_size(Handle(string), &size), "give a string's size");
    CheckTorch(api_.string_data(Handle(string), &data), "give a string's text");
    return {data, size};
  }
  void AddElement(AttributeType element, TorchValue value, Attribute::Values& to) const {
    switch (element) {
      case AttributeType::kFloat:
        to.floats.push_back(std::bit_cast<double>(value));
        break;
      case AttributeType::kBool:
        to.ints.push_back((value & 0xff) != 0);
        break;
      case AttributeType::kString:
        to.strings.emplace_back(Text(value));
        break;
      case AttributeType::kTensor: {
        opkit::Tensor view;
        ViewForeign(Tensor(Handle(value)), view);
        opkit::Tensor copy(view.shape(), view.dtype());  // outlives torch's tensor
        copy.CopyFrom(view.Contiguous());
        to.tensors.push_back(std::move(copy));
        break;
      }
      default:
        to.ints.push_back(static_cast<int64_t>(value));
    }
  }
  Attribute AttributeOf(const Argument& argument) const {
    auto values = MakeIntrusive<Attribute::Values>();
    const AttributeType element = ElementOf(*argument.parameter);
    if (IsList(*argument.parameter))
      for (const TorchValue item : argument.items) AddElement(element, item, *values);
    else
      AddElement(element, argument.value, *values);
    return Attribute(*argument.parameter->attribute->type, std::move(values));
  }

  const TorchApi& api_;
  TorchObjects owned_;
  std::vector<Argument> arguments_;
  std::vector<TorchHandle> tensors_;
  std::vector<int> present_;
};

// New tensors of torch. A call that fails deletes them.
class OPKIT_IMAGE_LOCAL TorchResults {
 public:
  TorchResults(const TorchApi& api, size_t count) : api_(api), owned_(api), tensors_(count) {
    owned_.tensors.reserve(count);
  }
  // Makes the tensor of output o.
  TorchHandle Make(size_t o, DType dtype, const Shape& shape, Device device) {
    const std::vector<int64_t> strides = RowMajorStrides(shape);
    int32_t number = -1;
    for (const TorchTypeRow& row : kTorchTypes)
      if (row.dtype == dtype) number = row.number;
    TorchHandle made = nullptr;
    CheckTorch(
        api_.empty(shape.rank(), shape.data(), strides.data(), number,
                   device.type == DeviceType::kCUDA ? kTorchCuda : kTorchCpu, device.index, &made),
        "make a tensor");
    owned_.tensors.push_back(made);
    return tensors_[o] = made;
  }
  // Gives the tensors to torch, on its stack.
  void GiveEach(TorchValue* stack) {
    for (size_t o = 0; o < tensors_.size(); ++o)
      stack[o] = reinterpret_cast<TorchValue>(tensors_[o]);
    owned_.tensors.clear();
  }
  void GiveList(TorchValue* stack) {
    TorchHandle list = nullptr;
    CheckTorch(api_.new_list(tensors_.size(), &list), "make a list");
    owned_.lists.push_back(list);
    for (const TorchHandle tensor : tensors_)
      CheckTorch(api_.list_add(list, reinterpret_cast<TorchValue>(tensor)), "fill a list");
    stack[0] = reinterpret_cast<TorchValue>(list);
    owned_.tensors.clear(), owned_.lists.clear();
  }

 private:
  static std::vector<int64_t> RowMajorStrides(const Shape& shape) {
    std::vector<int64_t> strides(static_cast<size_t>(shape.rank()), 1);
    for (int axis = shape.rank() - 2; axis >= 0; --axis)
      strides[Index(axis)] = strides[Index(axis + 1)] * (std::max)(shape[axis + 1], int64_t{1});
    return strides;
  }

  const TorchApi& api_;
  TorchObjects owned_;
  std::vector<TorchHandle> tensors_;  // null before Make
};

inline void RunOnTorchThreads(const TorchApi& api, int count, FunctionRef<void()> work) {
  // Each range of torch's loop runs the work once; a thread that finds none left returns at once.
  const auto body = [](int64_t, int64_t, void* data) {
    (*static_cast<FunctionRef<void()>*>(data))();
  };
  CheckTorch(api.parallel_for(0, count, 1, body, &work), "run a parallel loop");
}

OPKIT_INLINE void RunTorchOperator(const TorchOperator& op, TorchValue* stack, uint64_t num_args) {
  const ScopedValue calls_own(t_calls_own_operators, true);
  const TorchApi& api = *op.api;
  const TorchArguments call(api, op, stack, num_args);
  const std::vector<TorchHandle>& tensors = call.tensors();
  std::vector<ForeignTensor> inputs;
  for (const TorchHandle tensor : tensors) inputs.push_back(call.Tensor(tensor));
  const Device device = inputs.empty() ? Device{DeviceType::kCPU, 0} : inputs[0].device;

  CallKey key;
  key.Add(device.type), key.Add(device.index), key.Add(call.present().size());
  for (const int one : call.present()) key.Add(one);
  const auto make = [&] {
    const Arguments args = call.Attributes();
    RefuseMutation(op.op, static_cast<int>(call.present().size()), args, "torch");
    return std::make_unique<ReadyOperator>(op.op.name(), call.present(), args, device);
  };
  const std::unique_ptr<ReadyOperator> own = call.AddAttributes(key) ? nullptr : make();
  const Lease ready = own ? Lease(*own, nullptr, nullptr) : KeptOperator(op.op, key, make);

  for (int i = 0, given = 0; i < ready->num_inputs(); ++i)
    if (ready->has_input(i)) ready->SetInput(i, inputs[Index(given++)]);
  const auto num_outputs = static_cast<size_t>(ready->num_outputs());
  TorchResults results(api, num_outputs);
  const auto inferred = ready->InferOutputs();
  std::vector<bool> known;
  for (size_t o = 0; o < num_outputs; ++o) {
    const auto& output = inferred[o];
    known.push_back(output.known && output.dtype != DType::kUndefined);
    if (known.back())
      ready->SetOutput(static_cast<int>(o),
                       call.Tensor(results.Make(o, output.dtype, output.shape, device)));
  }
  uint32_t threads = 0;
  CheckTorch(api.num_threads(&threads), "give its number of threads");
  const auto on_threads = [&](int count, FunctionRef<void()> work) {
    RunOnTorchThreads(api, count, work);
  };
  const LoopsOnHost loops((std::max)(static_cast<int>(threads), 1), on_threads);
  {
    const ScopedValue<const LoopRunner*> on_host(t_loop_runner, &loops);
    if (device.type == DeviceType::kCUDA) {
      int32_t (*get_stream)(int32_t, void**) = nullptr;
      get_stream = reinterpret_cast<decltype(get_stream)>(
          FindHostSymbol("aoti_torch_get_current_cuda_stream", "libtorch_cuda.so"));
      void* stream = nullptr;
      if (!get_stream) Throw(ErrorCode::kUnsupported, "this PyTorch has no CUDA streams");
      CheckTorch(get_stream(device.index, &stream), "give its current stream");
      ready->Issue(stream);
    } else {
      ready->Run();
    }
  }
  for (size_t o = 0; o < num_outputs; ++o) {
    if (known[o]) continue;
    const int index = static_cast<int>(o);
    const opkit::Tensor& made = ready->result(index);
    ready->CopyOutput(index, call.Tensor(results.Make(o, made.dtype(), made.shape(), device)));
  }
  if (ReturnsTorchList(op.op.schema()))
    results.GiveList(stack);
  else
    results.GiveEach(stack);
}

// A library of torch: registrations that its deletion undoes.
class OPKIT_IMAGE_LOCAL TorchLibrary {
 public:
  TorchLibrary() = default;
  TorchLibrary(TorchLibrary&&) = delete;
  ~TorchLibrary() {
    if (library_) TorchApi::Find()->delete_library(library_);
  }
  // To be written by a function of torch.
  TorchHandle* out() { return &library_; }
  TorchHandle get() const { return library_; }

 private:
  TorchHandle library_ = nullptr;
};

// The dispatch keys for which an operator is registered. Torch chooses the key by the tensors of a
// call, and has this key for a call without.
inline std::span<const char* const> TorchKeysOf(const std::vector<TorchParameter>& parameters) {
  static constexpr const char* kDevices[] = {"CPU", "CUDA"};
  static constexpr const char* kAny[] = {"CompositeExplicitAutograd"};
  for (const TorchParameter& parameter : parameters)
    if (parameter.kind == TorchParameter::kTensors ||
        (parameter.kind == TorchParameter::kTensor && !parameter.optional))
      return kDevices;
  return kAny;
}

OPKIT_INLINE const char* RegisterTorchOperator(TorchOperator& op) noexcept {
  thread_local std::string text;
  try {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    if (op.registered) return nullptr;
    const TorchApi* const api = TorchApi::Find();
    if (!api) Throw(ErrorCode::kFailedPrecondition, "this process has not loaded PyTorch");
    auto parameters = std::make_unique<std::vector<TorchParameter>>();
    const std::string schema = TorchSchemaOf(op.op, parameters.get());
    // Version 2.10, for which the values on the stack are written.
    constexpr uint64_t kVersion = uint64_t{2} << 56 | uint64_t{10} << 48;
    const char* const domain = ExportDomain();
    auto libraries = std::make_unique<std::list<TorchLibrary>>();
    const auto open = [&] { return libraries->emplace_back().out(); };
    CheckTorch(api->init_fragment(domain, __FILE__, __LINE__, open()), "open a library");
    CheckTorch(api->define(libraries->back().get(), schema.c_str()),
               StrCat("define ", domain, "::", schema).c_str());
    for (const char* key : TorchKeysOf(*parameters)) {
      CheckTorch(api->init_impl(domain, key, __FILE__, __LINE__, open()), "open a library");
      CheckTorch(api->implement(libraries->back().get(), op.op.name(), op.kernel, kVersion),
                 StrCat("add a kernel for ", key, " to ", domain, "::", op.op.name()).c_str());
    }
    op.api = api;
    op.libraries = libraries.release();
    op.parameters = parameters.release();
    op.registered = true;
    return nullptr;
  } catch (const std::exception& error) {
    try {
      text = error.what();
      return text.c_str();
    } catch (...) {
      return "out of memory";
    }
  }
}

OPKIT_INLINE bool TryRegisterTorchOperator(TorchOperator& op) noexcept {
  try {
    if (!TorchApi::Find()) return false;
    RegisterLibraryOperators();
    if (!OpRegistry::Global().FindSchema(op.op.name())) return false;
  } catch (...) {
    return false;
  }
  return !RegisterTorchOperator(op);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_EXPORT_IMPL_TORCH_IPP_
