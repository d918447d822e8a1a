// REGISTER_OP: operators made of plain functions, the spelling that MXNet's loadable operators
// have. The builder fills in a record, which a program registers
// (op/function/function_operator.hpp) and a library hands over (plugin/export/library_export.hpp).
#ifndef OPKIT_OP_FUNCTION_OP_HPP_
#define OPKIT_OP_FUNCTION_OP_HPP_

#include "opkit/op/function/function_signature.hpp"
#include "opkit/op/schema/value_schema.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Whether REGISTER_OP takes the name: my_gemm, com.me.Gemm, me::Gemm.
consteval bool IsOperatorName(std::string_view name) {
  for (const char c : name)
    if (c == '"' || c == ' ' || c == '<' || c == '(') return false;
  return !name.empty();
}

// What holds a library: its operators, those of its runs that end after their function, and whoever
// else has a handle. Relaxed everywhere: unloading reads the numbers for its message alone.
struct FunctionUse : RefCounted {
  std::atomic<int64_t> operators{0}, late_runs{0};
};

}  // namespace detail

// The functions for one device type.
struct FunctionDevice {
  std::string name;                    // "cpu", "gpu", …
  std::string backend;                 // of a library's kernel; empty: the plain one
  DeviceType type = DeviceType::kCPU;  // the type of that name, if the program knows it
  ForwardFunction forward, backward;
  CreateStateFunction create_state;  // where set, its object is called instead of the two
  bool shares_state = true;          // backward runs the object that forward has used
  // Of a library's kernel that proposes configurations; empty: one, as the record says.
  UniqueFunction<std::vector<KernelConfig>(const KernelQuery&)> propose;
  // Of one that takes the next node in.
  UniqueFunction<std::optional<FusedNode>(const FusionQuery&)> fuse;
  opkit_kernel abi{};  // the functions' form in opkit_abi.h, where the record crosses
};

// The description of an operator: REGISTER_OP fills it in, and so does a library for its classes
// and typed operators. op/abi/op_conversion.hpp makes an opkit_op of it, and a record again where a
// program loads the library. Read-only after registration; called from several threads.
struct FunctionOpRecord : detail::RefCounted {
  std::string name;
  const char* file = "";
  int line = 0;
  std::string doc;
  std::string library;  // the library that it came from; empty for the program itself
  // As that library announces them: its own version, or that of its toolkit.
  std::string library_name, library_version;
  uint64_t flags = 0;  // OPKIT_OP_SUBGRAPH, …
  std::vector<FunctionDevice> devices;
  std::vector<std::pair<int, int>> inplace;  // {input, output}
  std::vector<AttributeSchema> attributes;
  std::vector<ValueSchema> inputs, outputs;

  // The functions of REGISTER_OP.
  ParseAttrsFunction parse_attrs;
  InferTypeFunction infer_type;
  InferShapeFunction infer_shape;
  MutateInputsFunction mutate_inputs;
  ScratchFunction scratch;
  FlopsFunction flops;
  // Their form in opkit_abi.h, where the record crosses.
  opkit_op abi{};
  // detail::FunctionHooks, which answer for a library's operator instead of the functions.
  detail::IntrusivePtr<detail::RefCounted> hooks;

  // A library's: held by every operator made of the record, and by what may make more.
  detail::IntrusivePtr<detail::FunctionUse> in_use;
  std::string problem;  // what is wrong with the registration; reported when the operator is used

  // The attributes of a node, with the defaults of those that it does not give.
  template <class From>
  AttrMap Attrs(const From& from) const {
    AttrMap attrs(from);
    for (const AttributeSchema& declared : attributes)
      if (declared.default_value) attrs.AddDefault(declared.name, *declared.default_value);
    return attrs;
  }
  // How many inputs and outputs a node has: parse_attrs says it, or those that are declared.
  OpStatus CountValues(const AttrMap& attrs, int* num_in, int* num_out) {
    if (parse_attrs) return parse_attrs(attrs, num_in, num_out);
    if (!inputs.empty()) *num_in = static_cast<int>(inputs.size());
    if (!outputs.empty()) *num_out = static_cast<int>(outputs.size());
    return {};
  }
  bool Has(uint64_t flag) const { return (flags & flag) != 0; }
  // Whether a record that has crossed has a backward function.
  bool HasBackward() const {
    for (const FunctionDevice& device : devices)
      if (device.abi.backward) return true;
    return false;
  }
};

namespace detail {
using FunctionRecord = IntrusivePtr<FunctionOpRecord>;
}  // namespace detail

// Fills in a record; made by REGISTER_OP. Devices are "cpu" (also when none is given), "gpu",
// "cpu_stream", or the name of a device type of your own. A function may be a function, a function
// pointer or a lambda.
//
//   int forward(std::map<std::string, std::string> attrs, std::vector<OpTensor> inputs,
//               std::vector<OpTensor> outputs, OpResource res);
//   REGISTER_OP(my_gemm).setForward(forward, "cpu").setBackward(backward, "cpu")
//       .setParseAttrs(parseAttrs).setInferType(inferType).setInferShape(inferShape);
//
// Attributes arrive in a map of strings, by value or const reference; tensors in a vector, by
// value, reference or pointer; the answer is int (1 is success), bool, ReturnValue, Status or void.
// The form that allocates nothing is
//   Status forward(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, OpResource&);
//
// Host takes the record, and is told what is added to it: FunctionOpHost in a program,
// LibraryOpHost in a library.
template <class Host>
class BasicFunctionOpBuilder {
 public:
  BasicFunctionOpBuilder(const char* name, const char* file, int line) noexcept
      : record_(new FunctionOpRecord), host_(record_) {
    Guarded([&] {
      record_->name = name;
      record_->file = file;
      record_->line = line;
      host_.Begin();
    });
  }

  // Computes the outputs. Their shapes are those that inferShape says; without it, those that the
  // output tensors have before the run.
  template <class F>
  BasicFunctionOpBuilder& setForward(F f, const char* device = "cpu") {
    static_assert(detail::kFits<ForwardFunction, F>,
                  "setForward(f): write int f(std::map<std::string, std::string> attrs, "
                  "std::vector<OpTensor> inputs, std::vector<OpTensor> outputs, OpResource res) or "
                  "Status f(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, "
                  "OpResource&)");
    return OnDevice<FunctionPass::kForward>(device, "setForward", &FunctionDevice::forward,
                                            std::move(f));
  }
  // Computes the gradients of the inputs from those of the outputs, the inputs and the outputs, in
  // this order: the operator <name>_backward, and the gradient of this one.
  template <class F>
  BasicFunctionOpBuilder& setBackward(F f, const char* device = "cpu") {
    static_assert(detail::kFits<ForwardFunction, F>,
                  "setBackward(f): write int f(std::map<std::string, std::string> attrs, "
                  "std::vector<OpTensor> inputs, std::vector<OpTensor> outputs, OpResource res) or "
                  "Status f(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, "
                  "OpResource&)");
    return OnDevice<FunctionPass::kBackward>(device, "setBackward", &FunctionDevice::backward,
                                             std::move(f));
  }
  // Makes the object that runs the operator. It is also asked for the gradient, but for that of an
  // operator with setIsSubgraphOp(), which is its graph's; with setNoGradient() there is none.
  template <class F>
  BasicFunctionOpBuilder& setCreateOpState(F f, const char* device = "cpu") {
    static_assert(detail::kFits<CreateStateFunction, F>,
                  "setCreateOpState(f): write int f(std::map<std::string, std::string> attrs, "
                  "StatefulOp** state), with OpContext context in the middle if you need the "
                  "device; std::unique_ptr<StatefulOp>* also does for the state");
    OnDevice<FunctionPass::kForward>(device, "setCreateOpState", &FunctionDevice::create_state,
                                     std::move(f));
    return Guarded([&] {
      if (auto* added = FindDevice(Host::DeviceName(device, "setCreateOpState")))
        if (!record_->Has(OPKIT_OP_NO_GRADIENT) && !record_->Has(OPKIT_OP_SUBGRAPH))
          host_.template Add<FunctionPass::kBackward>(*added);
    });
  }
  // Says that the operator has no gradient, for instance because its StatefulOp has no Backward.
  BasicFunctionOpBuilder& setNoGradient() {
    return Guarded([&] {
      for (const FunctionDevice& device : record_->devices)
        if (device.backward)
          Throw(ErrorCode::kInvalidArgument, "setBackward(f) and setNoGradient() contradict");
      record_->flags |= OPKIT_OP_NO_GRADIENT;
      host_.NoGradient();
    });
  }
  // Declares an attribute of any type, of type T, or of the type of its default, which the
  // functions read where a node does not give it. Once one is declared, a node may give no other,
  // unless setOpenAttrs() is called.
  BasicFunctionOpBuilder& setAttr(const char* name, const char* doc) {
    return Declare({name, doc, false, {}, {}});
  }
  template <class T>
  BasicFunctionOpBuilder& setAttr(const char* name, const char* doc) {
    return Declare({name, doc, false, kAttributeTypeOf<T>, {}});
  }
  BasicFunctionOpBuilder& setAttr(const char* name, const char* doc, Attribute fallback) {
    return Declare({name, doc, false, fallback.type(), fallback});
  }
  // Declares one that every node must give.
  template <class T>
  BasicFunctionOpBuilder& setRequiredAttr(const char* name, const char* doc) {
    return Declare({name, doc, true, kAttributeTypeOf<T>, {}});
  }
  BasicFunctionOpBuilder& setOpenAttrs() {
    return Guarded([&] { host_.OpenAttrs(); }).Set(OPKIT_OP_OPEN_ATTRS);
  }
  // Declares the next input or output: its name, and the dtypes where they are limited. Those
  // declared are the inputs and outputs of every node where there is no setParseAttrs.
  BasicFunctionOpBuilder& setInput(const char* name, const char* doc = "",
                                   std::vector<DType> dtypes = {}) {
    return Guarded([&] {
      record_->inputs.push_back({name, doc, std::move(dtypes)});
      host_.Input(record_->inputs);
    });
  }
  BasicFunctionOpBuilder& setOutput(const char* name, const char* doc = "",
                                    std::vector<DType> dtypes = {}) {
    return Guarded([&] {
      record_->outputs.push_back({name, doc, std::move(dtypes)});
      host_.Output(record_->outputs);
    });
  }
  // Says how many inputs and outputs a node with these attributes has, and refuses wrong
  // attributes. Without it, and without declared ones, any number goes; a library's operator needs
  // one of the two.
  template <class F>
  BasicFunctionOpBuilder& setParseAttrs(F f) {
    static_assert(detail::kFits<ParseAttrsFunction, F>,
                  "setParseAttrs(f): write int f(std::map<std::string, std::string> attrs, int* "
                  "num_in, int* num_out)");
    return Once(record_->parse_attrs, "setParseAttrs", std::move(f));
  }
  // Infers dtypes of outputs from those of inputs, or the reverse; numbers of DType, -1 for
  // unknown. Without it every output has the dtype of input 0.
  template <class F>
  BasicFunctionOpBuilder& setInferType(F f) {
    static_assert(detail::kFits<InferTypeFunction, F>,
                  "setInferType(f): write int f(std::map<std::string, std::string> attrs, "
                  "std::vector<int>& intypes, std::vector<int>& outtypes)");
    host_.InfersTypes();
    return Once(record_->infer_type, "setInferType", std::move(f));
  }
  // Infers shapes of outputs from those of inputs, or the reverse. Unknown are an extent of -1 (the
  // largest number as unsigned int) and, where the value has not been seen yet, an empty shape.
  // While something is unknown a failure means that nothing can be said yet. A library's operator
  // that has outputs needs it, unless it calls setAllocatesOutputs().
  template <class F>
  BasicFunctionOpBuilder& setInferShape(F f) {
    static_assert(detail::kFits<InferShapeFunction, F>,
                  "setInferShape(f): write int f(std::map<std::string, std::string> attrs, "
                  "std::vector<std::vector<unsigned int>>& inshapes, "
                  "std::vector<std::vector<unsigned int>>& outshapes), or with int64_t");
    host_.InfersShapes();
    return Once(record_->infer_shape, "setInferShape", std::move(f));
  }
  // Names the inputs that are written to.
  template <class F>
  BasicFunctionOpBuilder& setMutateInputs(F f) {
    static_assert(detail::kFits<MutateInputsFunction, F>,
                  "setMutateInputs(f): write int f(std::map<std::string, std::string> attrs, "
                  "std::vector<int>& input_indices), or setMutateInputs({0, 2})");
    host_.MutatesInputs();
    return Once(record_->mutate_inputs, "setMutateInputs", std::move(f));
  }
  BasicFunctionOpBuilder& setMutateInputs(std::initializer_list<int> inputs) {
    return setMutateInputs(
        [list = std::vector<int>(inputs)](const AttrMap&, std::vector<int>& out) { out = list; });
  }
  // Asks for memory for the whole of a run of either pass, known from the shapes of the forward
  // inputs before it, so that a plan can hold it.
  BasicFunctionOpBuilder& setScratch(int64_t bytes) {
    host_.NeedsScratch();
    return Once(record_->scratch, "setScratch",
                [bytes](const AttrMap&, const ShapeVectors&) { return bytes; });
  }
  template <class F>
    requires(!std::is_arithmetic_v<F>)
  BasicFunctionOpBuilder& setScratch(F f) {
    static_assert(detail::kFits<ScratchFunction, F>,
                  "setScratch(f): write int64_t f(const AttrMap& attrs, const "
                  "std::vector<std::vector<int64_t>>& inshapes), or setScratch(bytes)");
    host_.NeedsScratch();
    return Once(record_->scratch, "setScratch", std::move(f));
  }
  // Counts the arithmetic of a run whose shapes are all known; the toolkit counts the bytes.
  template <class F>
  BasicFunctionOpBuilder& setFlops(F f) {
    static_assert(detail::kFits<FlopsFunction, F>,
                  "setFlops(f): write uint64_t f(const AttrMap& attrs, const "
                  "std::vector<std::vector<int64_t>>& inshapes, const "
                  "std::vector<std::vector<int64_t>>& outshapes)");
    Once(record_->flops, "setFlops", std::move(f));
    return Guarded([&] { host_.Cost(); });
  }
  // Names pairs {input, output} that may share memory.
  BasicFunctionOpBuilder& setInplace(std::initializer_list<std::pair<int, int>> pairs) {
    return Guarded([&] {
      for (const auto& pair : pairs) record_->inplace.push_back(pair);
    });
  }
  // Its nodes carry a graph, which the functions run; one without is refused. Without setBackward
  // its gradient is that of the graph.
  BasicFunctionOpBuilder& setIsSubgraphOp() {
    return Guarded([&] {
             host_.NeedsSubgraph();
             for (const FunctionDevice& device : record_->devices)
               if (device.backward) return;
             host_.DropBackward();  // of setCreateOpState
           })
        .Set(OPKIT_OP_SUBGRAPH);
  }
  // The functions respect strides(). Otherwise strided inputs arrive as dense copies.
  BasicFunctionOpBuilder& setAcceptStrides() { return Set(OPKIT_OP_ACCEPTS_STRIDES); }
  // The functions respect OpReq::kAdd. Otherwise the toolkit adds their results up.
  BasicFunctionOpBuilder& setAcceptAdd() { return Set(OPKIT_OP_ACCEPTS_ADD); }
  // forward may end after it has returned: it takes OpResource::defer(), whose holder completes it.
  // On the CPU; on streams the stream does it.
  BasicFunctionOpBuilder& setAsync() { return Set(OPKIT_OP_ASYNC); }
  // The data decides the shapes of outputs: those that inference leaves open have no dtype and no
  // memory before forward makes them by OpResource::allocate_output. Not on CPU streams, where
  // the work runs after forward.
  BasicFunctionOpBuilder& setAllocatesOutputs() { return Set(OPKIT_OP_ALLOCATES_OUTPUTS); }
  // Two runs on the same inputs may differ (random numbers), or have an effect beside the outputs:
  // a graph never merges, folds or drops such nodes.
  BasicFunctionOpBuilder& setHasEffects() {
    return Guarded([&] { host_.HasEffects(); }).Set(OPKIT_OP_EFFECTS);
  }
  BasicFunctionOpBuilder& setDoc(const char* doc) {
    return Guarded([&] { record_->doc = doc, host_.Doc(); });
  }

 private:
  BasicFunctionOpBuilder& Declare(AttributeSchema attribute) {
    return Guarded([&] {
      for (const AttributeSchema& known : record_->attributes)
        if (known.name == attribute.name)
          Throw(ErrorCode::kInvalidArgument, "attribute '", known.name, "' is declared twice");
      host_.Attr(record_->attributes.emplace_back(std::move(attribute)));
    });
  }
  BasicFunctionOpBuilder& Set(uint64_t flag) { return record_->flags |= flag, *this; }
  // Static initialisers must not throw: an error is kept, and reported when the operator is used.
  template <class F>
  BasicFunctionOpBuilder& Guarded(F call) noexcept {
    try {
      call();
    } catch (...) {
      AddProblem(CurrentError().what());
    }
    return *this;
  }
  void AddProblem(const std::string& text) noexcept {
    try {
      std::string problem = StrCat("REGISTER_OP(", record_->name, ") at ", record_->file, ":",
                                   record_->line, ": ", text);
      host_.Problem(problem);
      if (record_->problem.empty()) record_->problem = std::move(problem);
    } catch (...) {  // no memory to report it in
    }
  }
  template <class Function, class F>
  BasicFunctionOpBuilder& Once(Function& slot, const char* setter, F f) {
    if (slot)
      AddProblem(StrCat(setter, " is called twice"));
    else
      slot = detail::AdaptTo<Function>(std::move(f));
    return *this;
  }
  FunctionDevice* FindDevice(std::string_view name) {
    for (FunctionDevice& device : record_->devices)
      if (device.name == name) return &device;
    return nullptr;
  }
  template <FunctionPass kPass, class Function, class F>
  BasicFunctionOpBuilder& OnDevice(const char* name, const char* setter,
                                   Function FunctionDevice::*slot, F f) {
    return Guarded([&] {
      FunctionDevice added;
      added.name = Host::DeviceName(name, setter);
      FunctionDevice* functions = FindDevice(added.name);
      if (!functions) functions = &record_->devices.emplace_back(std::move(added));
      if (kPass == FunctionPass::kBackward && record_->Has(OPKIT_OP_NO_GRADIENT))
        Throw(ErrorCode::kInvalidArgument, "setBackward(f) and setNoGradient() contradict");
      if (functions->*slot)
        Throw(ErrorCode::kInvalidArgument, setter, "(f, \"", name, "\") is called twice");
      functions->*slot = detail::AdaptTo<Function>(std::move(f));
      host_.template Add<kPass>(*functions);
    });
  }

  detail::FunctionRecord record_;
  Host host_;
};

}  // namespace opkit

#endif  // OPKIT_OP_FUNCTION_OP_HPP_
