// The host's side of a loaded library: what it describes is checked, and its operators become
// records like those of REGISTER_OP, whose functions call the library's.
#ifndef OPKIT_PLUGIN_LIBRARY_OPS_HPP_
#define OPKIT_PLUGIN_LIBRARY_OPS_HPP_

#include "opkit/op/function_operator.hpp"
#include "opkit/plugin/abi_node.hpp"
#include "opkit/plugin/shared_object.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Bytes of the structs in version 1.0: what every reader may rely on. Members were added since
// where the header's sizes are larger.
inline constexpr uint64_t kOpBytes = 192, kKernelBytes = 72, kLibraryBytes = 104,
                          kParameterBytes = 56, kAttrBytes = 88, kTensorBytes = 72;
static_assert(sizeof(opkit_op) >= kOpBytes && sizeof(opkit_kernel) >= kKernelBytes &&
              sizeof(opkit_library) >= kLibraryBytes &&
              sizeof(opkit_parameter) >= kParameterBytes && sizeof(opkit_attr) >= kAttrBytes &&
              sizeof(opkit_tensor) >= kTensorBytes);

// The code of a library, kept loaded by whoever may call it.
struct LibraryImage : RefCounted {
  IntrusivePtr<SharedObject> object;  // null for the program's own operators
  const opkit_library* library = nullptr;
  std::string name;
};
using LibraryImagePtr = IntrusivePtr<LibraryImage>;

// Calls a function of a library; what it reports becomes an Error.
template <class Call>
void CallLibrary(const char* what, const std::string& op, const std::string& library, Call call) {
  HostErrorScope message;
  const opkit_status status = CallGuarded(call);
  if (status == OPKIT_OK) [[likely]]
    return;
  Throw(CodeOfStatus(status), what, " of operator ", op, " of library ", library,
        " failed: ", ReasonOf(status));
}

class LibraryHooks final : public FunctionHooks {
 public:
  LibraryHooks(LibraryImagePtr image, const opkit_op* op)
      : image_(std::move(image)), op_(op), name_(op->name) {}

  std::pair<int, int> Arity(const Arguments& args) override {
    if (!op_->parse_attrs) return {-1, -1};
    const AbiNode node(OperatorDef(name_, {}, {}, args));
    int32_t inputs = -1, outputs = -1;
    CallLibrary("parseAttrs", name_, image_->name,
                [&] { return op_->parse_attrs(op_, &node.node(), &inputs, &outputs); });
    if (inputs < -1 || outputs < -1 || inputs > kMostValues || outputs > kMostValues)
      Throw(ErrorCode::kInvalidArgument, "parseAttrs of operator ", name_, " of library ",
            image_->name, " says ", inputs, " inputs and ", outputs, " outputs; -1 is any number, ",
            kMostValues, " are the most");
    return {inputs, outputs};
  }
  bool InfersTypes() const override { return op_->infer_type != nullptr; }
  bool InfersShapes() const override { return op_->infer_shape != nullptr; }

  void Infer(InferenceContext& context) override {
    const AbiNode node(context.def());
    std::vector<std::string> symbols;
    AbiValues inputs(context.inputs(), symbols), outputs(context.outputs(), symbols);
    bool types_known = true, shapes_known = true, anything = context.num_inputs() == 0;
    for (int i = 0; i < context.num_inputs(); ++i) {
      if (!context.HasInput(i)) {
        inputs[static_cast<size_t>(i)].present = 0;
        continue;
      }
      const TensorInfo& input = context.input(i);
      types_known &= input.dtype != DType::kUndefined;
      shapes_known &= input.shape.is_known();
      anything |= input.shape.has_rank();
      if (input.constant) inputs.SetConstant(static_cast<size_t>(i), *input.constant);
    }
    for (const TensorInfo& output : context.outputs()) anything |= output.shape.has_rank();
    const auto run = [&](const char* what, bool all_known, auto function) {
      try {
        CallLibrary(what, name_, image_->name,
                    [&] { return function(op_, &node.node(), inputs.data(), outputs.data()); });
        return true;
      } catch (const Error&) {
        if (all_known) throw;
        return false;  // not yet
      }
    };
    const auto in_answer = [&](const char* what, auto store) {
      try {
        store();
      } catch (Error& error) {
        error.AddContext(StrCat("in what ", what, " of operator ", name_, " of library ",
                                image_->name, " answers"));
        throw;
      }
    };
    if (!op_->infer_type) {
      for (int o = 0; o < context.num_outputs() && context.num_inputs() > 0; ++o)
        context.SetOutput(o, context.input_dtype(0), {});
    } else if (run("inferType", types_known, op_->infer_type)) {
      in_answer("inferType", [&] {
        for (int i = 0; i < context.num_inputs(); ++i)
          if (context.HasInput(i))
            context.SetInput(i, inputs.dtype(static_cast<size_t>(i), "input"), {});
        for (int o = 0; o < context.num_outputs(); ++o)
          context.SetOutput(o, outputs.dtype(static_cast<size_t>(o), "output"), {});
      });
    }
    if (!op_->infer_shape || !anything) return;
    const auto infer_shapes = [&](bool all_known) {
      if (!run("inferShape", all_known, op_->infer_shape)) return false;
      in_answer("inferShape", [&] {
        for (int i = 0; i < context.num_inputs(); ++i)
          if (context.HasInput(i))
            context.SetInput(i, DType::kUndefined, inputs.shape(static_cast<size_t>(i), "input"));
        for (int o = 0; o < context.num_outputs(); ++o)
          context.SetOutput(o, DType::kUndefined, outputs.shape(static_cast<size_t>(o), "output"));
      });
      for (const TensorInfo& output : context.outputs())
        if (!output.shape.is_known()) return false;
      return true;
    };
    // With the elements of short lists of integers where shapes alone do not decide: an answer that
    // came from data does not outlast the run.
    bool has_data = false;
    const auto may_decide = [&](int i) {
      if (!context.HasInput(i)) return false;
      const TensorInfo& input = context.input(i);
      return IsInteger(input.dtype) && input.shape.has_rank() && input.shape.rank() < 2;
    };
    bool data_may_decide = false;
    for (int i = 0; i < context.num_inputs(); ++i) data_may_decide |= may_decide(i);
    if (infer_shapes(shapes_known && !data_may_decide) || !data_may_decide) return;
    for (int i = 0; i < context.num_inputs(); ++i)
      if (const Tensor* data = may_decide(i) ? context.input_constant(i) : nullptr) {
        inputs.SetConstant(static_cast<size_t>(i), *data);
        has_data = true;
      }
    if (has_data || shapes_known) infer_shapes(shapes_known);
  }
  std::vector<int> MutatedInputs(const OperatorDef& given) override {
    std::vector<int> inputs;
    if (!op_->mutated_inputs) return inputs;
    OperatorDef def = given;
    if (def.inputs().empty()) {  // asked of the attributes alone
      const int count = Arity(def.args()).first;
      for (int i = 0; i < (count < 0 ? OPKIT_MAX_RANK : count); ++i) def.Input(StrCat(i));
    }
    const AbiNode node(def);
    std::vector<uint8_t> mutated(def.inputs().size());
    CallLibrary("mutateInputs", name_, image_->name,
                [&] { return op_->mutated_inputs(op_, &node.node(), mutated.data()); });
    for (size_t i = 0; i < mutated.size(); ++i)
      if (mutated[i]) inputs.push_back(static_cast<int>(i));
    return inputs;
  }
  int64_t Scratch(const OperatorDef& def, std::span<const TensorInfo> infos) override {
    if (!op_->scratch_bytes) return 0;
    const AbiNode node(def);
    std::vector<std::string> symbols;
    AbiValues inputs(infos, symbols);
    int64_t bytes = 0;
    CallLibrary("setScratch's function", name_, image_->name,
                [&] { return op_->scratch_bytes(op_, &node.node(), inputs.data(), &bytes); });
    if (bytes < 0)
      Throw(ErrorCode::kInvalidArgument, "operator ", name_, " of library ", image_->name,
            " asks for ", bytes, " bytes of scratch");
    return bytes;
  }

 private:
  static constexpr int32_t kMostValues = 65535;  // a node names them one by one

  LibraryImagePtr image_;
  const opkit_op* op_;
  std::string name_;
};

// Set when the process ends: a library's own objects may be gone before the operators that the
// program still holds.
inline std::atomic<bool>& ProcessEnds() {
  static constinit std::atomic<bool> ends{false};
  return ends;
}

// What a kernel of a library runs with, made for one operator.
class LibraryInstance final : public DirectState {
 public:
  LibraryInstance(LibraryImagePtr image, const opkit_kernel* kernel, const OpContext& context)
      : image_(std::move(image)),
        kernel_(kernel),
        instance_(const_cast<void*>(kernel->author)),
        node_(*context.def) {
    if (!kernel->create) return;
    instance_ = nullptr;
    try {
      CallLibrary("createOpState", context.def->type(), image_->name,
                  [&] { return kernel->create(kernel, &node_.node(), &instance_); });
    } catch (const Error& error) {  // another kernel may take the node
      if (error.code() == ErrorCode::kUnsupported)
        throw UnsupportedOperatorFeature(error.message());
      throw;
    }
  }
  ~LibraryInstance() override {
    if (ProcessEnds().load(std::memory_order_relaxed)) {  // left to it, where leak checkers see it
      static auto* const left = new std::vector<void*>;
      left->push_back(instance_);
      return;
    }
    if (!kernel_->create || !kernel_->destroy) return;
    HostErrorScope message;
    CallGuarded([&] { return kernel_->destroy(instance_), OPKIT_OK; });
  }
  Function direct(FunctionPass pass) const override {
    return pass == FunctionPass::kForward ? kernel_->forward : kernel_->backward;
  }
  void* instance() const override { return instance_; }
  // Of a backward that runs the forward's instance.
  OpStatus Run(FunctionPass pass, std::span<const OpTensor>, std::span<OpTensor>,
               OpResource& resource) override {
    const opkit_status status =
        CallGuarded([&] { return direct(pass)(instance_, resource.call()); });
    if (status == OPKIT_OK) [[likely]]
      return {};
    const std::string reason = ReasonOf(status);
    CurrentHostError().text.clear();
    if (CodeOfStatus(status) != ErrorCode::kOperatorFailed)
      throw Error(CodeOfStatus(status), reason);
    return OpStatus::Failure(reason);
  }

 private:
  LibraryImagePtr image_;
  const opkit_kernel* kernel_;
  void* instance_;
  AbiNode node_;  // whose memory an instance may point to
};

inline bool HasBackward(const opkit_op& op) {
  for (uint64_t k = 0; k < op.num_kernels; ++k)
    if (op.kernels[k]->backward) return true;
  return false;
}

// Every problem of a library's description is an Error that names it; nothing is registered yet.
class LibraryCheck {
 public:
  explicit LibraryCheck(const LibraryImage& image) : image_(image) {}

  void Check() const {
    const opkit_library* library = image_.library;
    if (library->size < kLibraryBytes)
      Refuse(StrCat("describes itself in ", library->size, " bytes, where version 1.0 has ",
                    kLibraryBytes),
             "fill in opkit_library.size with sizeof(opkit_library)");
    CheckText(library->name, "opkit_library.name");
    if (library->num_partitioners > 0 || library->num_passes > 0)
      Refuse(StrCat("brings ", library->num_partitioners, " partitioners and ", library->num_passes,
                    " passes, which version ", OPKIT_ABI_MAJOR, ".", OPKIT_ABI_MINOR,
                    " of the ABI does not have"),
             "load it in a newer program", ErrorCode::kUnsupported);
    if (library->num_ops > 0 && !library->ops)
      Refuse("has operators, but opkit_library.ops is null", {});
    if (library->num_ops > kMostOps)
      Refuse(StrCat("says it has ", library->num_ops, " operators"), "at most a million");
    for (uint64_t i = 0; i < library->num_ops; ++i) {
      if (!library->ops[i]) Refuse(StrCat("has a null pointer for operator ", i), {});
      CheckOp(*library->ops[i], i);
    }
    CheckNamesDiffer(*library);
  }

  [[noreturn]] OPKIT_COLD void Refuse(const std::string& what, const std::string& mend,
                                      ErrorCode code = ErrorCode::kInvalidArgument) const {
    Throw(code, "library ", image_.name, " ", what, mend.empty() ? "" : "; ", mend);
  }

 private:
  static constexpr uint64_t kMostOps = 1'000'000;
  static constexpr uint64_t kMostParts = 65535;  // kernels, parameters, pairs, elements
  static constexpr size_t kLongestName = 255;

  // A count, and the array that it counts.
  void CheckArray(uint64_t count, const void* array, const std::string& who,
                  const char* what) const {
    if (count > kMostParts)
      Refuse(StrCat("has ", who, " with ", count, " ", what), StrCat("at most ", kMostParts));
    if (count > 0 && !array) Refuse(StrCat("has ", who, " whose ", what, " are null"), {});
  }
  // A name for people: not too long, and of one line.
  void CheckText(const char* name, const std::string& what) const {
    if (!name) return;
    for (size_t i = 0; name[i]; ++i) {
      const auto c = static_cast<unsigned char>(name[i]);
      if (i >= kLongestName)
        Refuse(StrCat("has ", what, " of more than ", kLongestName,
                      " bytes: ", std::string(name, 32), "…"),
               {});
      if (c < ' ' || c == 127)
        Refuse(StrCat("has ", what, " that holds the character ", static_cast<int>(c)), {});
    }
  }

  void CheckOp(const opkit_op& op, uint64_t index) const {
    if (op.size < kOpBytes)
      Refuse(StrCat("describes operator ", index, " in ", op.size, " bytes, where version 1.0 has ",
                    kOpBytes),
             "fill in opkit_op.size with sizeof(opkit_op)");
    CheckName(op, index);
    const std::string who = StrCat("operator ", op.name);
    if (op.num_kernels == 0 || !op.kernels)
      Refuse(StrCat("has ", who, " without a kernel"),
             "give it a forward function: "
             "REGISTER_OP(…).setForward(f), or setCreateOpState(f)");
    CheckArray(op.num_kernels, op.kernels, who, "kernels");
    for (uint64_t k = 0; k < op.num_kernels; ++k) CheckKernel(op, k);
    CheckArray(op.num_inplace, op.inplace, who, "in-place pairs");
    for (uint64_t i = 0; i < op.num_inplace; ++i)
      if (op.inplace[2 * i] < 0 || op.inplace[2 * i + 1] < 0)
        Refuse(StrCat("has ", who, " that may run in place from input ", op.inplace[2 * i],
                      " to output ", op.inplace[2 * i + 1]),
               "both count from 0");
    CheckParameters(op.attrs, op.num_attrs, who, "attributes");
    CheckParameters(op.inputs, op.num_inputs, who, "inputs");
    CheckParameters(op.outputs, op.num_outputs, who, "outputs");
  }
  void CheckName(const opkit_op& op, uint64_t index) const {
    if (!op.name || !*op.name) Refuse(StrCat("gives operator ", index, " no name"), {});
    const std::string_view name = op.name;
    if (name.size() > kLongestName)
      Refuse(StrCat("has an operator whose name has ", name.size(), " bytes, ", name.substr(0, 32),
                    "…"),
             StrCat(kLongestName, " are the most"));
    if (name.find("::") != std::string_view::npos)
      Refuse(StrCat("has an operator named \"", name, "\""),
             "\"::\" is for parts of operators; name it otherwise");
    for (const char c : name)
      if (static_cast<unsigned char>(c) <= ' ' || c == 127)
        Refuse(StrCat("has an operator whose name holds the character ",
                      static_cast<int>(static_cast<unsigned char>(c))),
               "use letters, digits, _ . -");
  }
  void CheckKernel(const opkit_op& op, uint64_t k) const {
    const opkit_kernel* kernel = op.kernels[k];
    if (!kernel || kernel->size < kKernelBytes || !kernel->device)
      Refuse(StrCat("has kernel ", k, " of operator ", op.name,
                    " that is null, shorter than version 1.0's or without a device"),
             {});
    if (!kernel->forward)
      Refuse(StrCat("has operator ", op.name, " without a forward function for ", kernel->device),
             StrCat("REGISTER_OP(", op.name, ").setForward(f, \"", kernel->device,
                    "\"), or setCreateOpState(f, \"", kernel->device, "\")"));
    if (DeviceTypeFromName(kernel->device) < 0)
      Refuse(StrCat("has a kernel of operator ", op.name, " for \"", kernel->device,
                    "\", which is no device type of this program"),
             "\"cpu\", \"gpu\" and \"cpu_stream\" are");
    for (uint64_t other = 0; other < k; ++other)
      if (DeviceTypeFromName(op.kernels[other]->device) == DeviceTypeFromName(kernel->device))
        Refuse(StrCat("has two kernels of operator ", op.name, " for ", kernel->device), {});
  }
  void CheckParameters(const opkit_parameter* const* parameters, uint64_t count,
                       const std::string& who, const char* what) const {
    CheckArray(count, parameters, who, what);
    for (uint64_t i = 0; i < count; ++i) {
      const opkit_parameter* one = parameters[i];
      if (!one || one->size < kParameterBytes)
        Refuse(StrCat("has ", who, " of whose ", what, " number ", i,
                      " is null or shorter than version 1.0's"),
               {});
      if (!one->name || !*one->name)
        Refuse(StrCat("has ", who, " of whose ", what, " number ", i, " has no name"), {});
      if (one->type < -1 || one->type > OPKIT_ATTR_TENSORS)
        Refuse(StrCat("has ", who, " whose '", one->name, "' has the type ", one->type,
                      ", which does not exist"),
               {});
      if (one->default_value) CheckAttr(*one->default_value, StrCat(who, " whose '", one->name));
    }
  }
  // One that is going to be read.
  void CheckAttr(const opkit_attr& attr, const std::string& whose) const {
    const auto refuse = [&](const auto& why) { Refuse(StrCat("has ", whose, "' ", why), {}); };
    if (attr.size < kAttrBytes) refuse("has a default that is shorter than version 1.0's");
    if (attr.type < 0 || attr.type > OPKIT_ATTR_TENSORS)
      refuse(StrCat("has a default of the type ", attr.type, ", which does not exist"));
    if (!attr.name) refuse("has a default without a name");
    if (attr.count > kMostParts) refuse(StrCat("has a default of ", attr.count, " elements"));
    const int type = attr.type % 5;
    const bool is_tensor = type == OPKIT_ATTR_TENSOR, is_text = type == OPKIT_ATTR_STRING;
    const void* elements = is_tensor                  ? static_cast<const void*>(attr.tensors)
                           : is_text                  ? static_cast<const void*>(attr.strings)
                           : type == OPKIT_ATTR_FLOAT ? static_cast<const void*>(attr.floats)
                                                      : static_cast<const void*>(attr.ints);
    if (attr.type < OPKIT_ATTR_INTS && attr.count != 1)
      refuse(StrCat("has a default of ", attr.count, " elements that is no list"));
    if (attr.count > 0 && (!elements || (is_text && !attr.string_sizes)))
      refuse("has a default whose elements are null");
    for (uint64_t i = 0; i < attr.count; ++i) {
      if (is_text && !attr.strings[i]) refuse("has a default with a null string");
      if (is_tensor) CheckTensor(attr.tensors[i], whose);
    }
  }
  void CheckTensor(const opkit_tensor* tensor, const std::string& whose) const {
    const bool whole = tensor && tensor->size >= kTensorBytes && tensor->dtype > 0 &&
                       tensor->dtype < kNumDTypes && tensor->rank >= 0 &&
                       tensor->rank <= OPKIT_MAX_RANK && tensor->device_type == OPKIT_CPU &&
                       tensor->data && (tensor->rank == 0 || (tensor->shape && tensor->strides));
    if (!whole) Refuse(StrCat("has ", whose, "' has a default that is no tensor of the CPU"), {});
  }
  // The gradient of an operator is one, too.
  void CheckNamesDiffer(const opkit_library& library) const {
    NameTable<int> seen;
    const auto add = [&](const std::string& name) {
      if (seen.Find(name))
        Refuse(StrCat("has two operators named ", name), "remove or rename one",
               ErrorCode::kAlreadyExists);
      seen.FindOrAdd(name);
    };
    for (uint64_t i = 0; i < library.num_ops; ++i) {
      const opkit_op& op = *library.ops[i];
      add(op.name);
      if (HasBackward(op)) add(StrCat(op.name, "_backward"));
    }
  }

  const LibraryImage& image_;
};

// A record of an operator of a library.
inline FunctionRecord MakeLibraryRecord(const LibraryImagePtr& image, const opkit_op& op,
                                        const IntrusivePtr<RefCounted>& in_use) {
  FunctionRecord record(new FunctionOpRecord);
  record->name = op.name;
  record->file = op.file ? op.file : "";
  record->line = op.line;
  record->doc = op.doc ? op.doc : "";
  record->library = image->name;
  record->hooks = IntrusivePtr<RefCounted>(new LibraryHooks(image, &op));
  record->in_use = in_use;
  for (uint64_t i = 0; i < op.num_inplace; ++i)
    record->inplace.emplace_back(op.inplace[2 * i], op.inplace[2 * i + 1]);
  record->is_subgraph_op = op.flags & OPKIT_OP_SUBGRAPH;
  record->accepts_strides = op.flags & OPKIT_OP_ACCEPTS_STRIDES;
  record->accepts_add = op.flags & OPKIT_OP_ACCEPTS_ADD;
  record->is_async = op.flags & OPKIT_OP_ASYNC;
  record->has_effects = op.flags & OPKIT_OP_EFFECTS;
  for (uint64_t k = 0; k < op.num_kernels; ++k) {
    const opkit_kernel* kernel = op.kernels[k];
    FunctionDevice& device = record->devices.emplace_back();
    device.name = kernel->device;
    device.type = static_cast<DeviceType>(DeviceTypeFromName(kernel->device));
    device.shares_state = kernel->flags & OPKIT_KERNEL_STATEFUL;
    device.create_state = [image, kernel](const AttrMap&, const OpContext& context,
                                          IntrusivePtr<StatefulOp>& state) -> OpStatus {
      state = MakeIntrusive<LibraryInstance>(image, kernel, context);
      return {};
    };
  }
  return record;
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_PLUGIN_LIBRARY_OPS_HPP_
