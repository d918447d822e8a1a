// The host's side of a loaded library: its operators become records like those of REGISTER_OP,
// whose functions call the library's.
#ifndef OPKIT_PLUGIN_LIBRARY_OPS_HPP_
#define OPKIT_PLUGIN_LIBRARY_OPS_HPP_

#include "opkit/op/function/function_calls.hpp"
#include "opkit/op/function/function_operator.hpp"
#include "opkit/plugin/abi_node.hpp"
#include "opkit/plugin/shared_object.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

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

template <class Image>
class LibraryHooks final : public FunctionHooks {
 public:
  LibraryHooks(IntrusivePtr<Image> image, const opkit_op* op)
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
    AbiValues<TensorInfo> inputs(context.inputs(), symbols), outputs(context.outputs(), symbols);
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
    std::vector<int> lists;
    for (int i = 0; i < context.num_inputs(); ++i)
      if (const TensorInfo& input = context.input(i);
          context.HasInput(i) && IsInteger(input.dtype) && input.shape.has_rank() &&
          input.shape.rank() < 2)
        lists.push_back(i);
    if (infer_shapes(shapes_known && lists.empty()) || lists.empty()) return;
    bool more_is_known = shapes_known;
    for (const int i : lists)
      if (const Tensor* data = context.input_constant(i)) {
        inputs.SetConstant(static_cast<size_t>(i), *data);
        more_is_known = true;
      }
    if (more_is_known) infer_shapes(shapes_known);
  }
  std::vector<int> MutatedInputs(const OperatorDef& def) override {
    std::vector<int> inputs;
    if (!op_->mutated_inputs) return inputs;
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
    AbiValues<TensorInfo> inputs(infos, symbols);
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

  IntrusivePtr<Image> image_;
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
template <class Image>
class LibraryInstance final : public DirectState {
 public:
  LibraryInstance(IntrusivePtr<Image> image, const opkit_kernel* kernel, const OpContext& context)
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
  IntrusivePtr<Image> image_;
  const opkit_kernel* kernel_;
  void* instance_;
  AbiNode node_;  // whose memory an instance may point to
};

// A record of an operator of a library.
template <class Image>
FunctionRecord MakeLibraryRecord(const IntrusivePtr<Image>& image, const opkit_op& op,
                                 const IntrusivePtr<RefCounted>& in_use) {
  FunctionRecord record(new FunctionOpRecord);
  record->name = op.name;
  record->file = op.file ? op.file : "";
  record->line = op.line;
  record->doc = op.doc ? op.doc : "";
  record->library = image->name;
  record->hooks = IntrusivePtr<RefCounted>(new LibraryHooks<Image>(image, &op));
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
      state = MakeIntrusive<LibraryInstance<Image>>(image, kernel, context);
      return {};
    };
  }
  return record;
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_PLUGIN_LIBRARY_OPS_HPP_
