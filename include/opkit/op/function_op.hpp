// REGISTER_OP: operators made of plain functions, in the spelling of MXNet's loadable operators.
// The builder fills in a record. A program registers the record
// (op/function/function_operator.hpp); a library exports it (plugin/export/library_export.hpp).
#ifndef OPKIT_OP_FUNCTION_OP_HPP_
#define OPKIT_OP_FUNCTION_OP_HPP_

#include "opkit/base/fixed_name.hpp"
#include "opkit/op/function/function_signature.hpp"
#include "opkit/op/schema/value_schema.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// True if REGISTER_OP accepts the name: my_gemm, com.me.Gemm, me::Gemm.
consteval bool IsOperatorName(std::string_view name) {
  for (const char c : name)
    if (c == '"' || c == ' ' || c == '<' || c == '(') return false;
  return !name.empty();
}

// True if the registration of an operator with this Host defines an anchor function: only in a
// program, and only if the operator's name can be part of a function's name.
template <class Host>
consteval bool HasAnchor(std::string_view name) {
  return !Host::kIsLibrary && IsIdentifier(name);
}

// Counts the operators and deferred runs that keep a library loaded. Any other handle to this
// object keeps the library loaded as well. Relaxed everywhere: unloading reads the counts only for
// its message.
struct FunctionUse : RefCounted {
  std::atomic<int64_t> operators{0}, late_runs{0};
};

}  // namespace detail

// The functions for one device type.
struct FunctionDevice {
  std::string name;                    // "cpu", "gpu", …
  std::string backend;                 // the backend of a library's kernel; empty: the plain kernel
  DeviceType type = DeviceType::kCPU;  // the type of that name, if the program knows it
  ForwardFunction forward, backward;
  CreateStateFunction create_state;  // if set, its object runs instead of forward and backward
  bool shares_state = true;          // backward runs the same object as forward
  // Set for a library's kernel that proposes configurations. Empty: one configuration, as the
  // record declares.
  UniqueFunction<std::vector<KernelConfig>(const KernelQuery&)> propose;
  // Set for a library's kernel that can fuse with the next node.
  UniqueFunction<std::optional<FusedNode>(const FusionQuery&)> fuse;
  opkit_kernel abi{};  // the functions in the form of opkit_abi.h, for libraries
};

// The description of an operator. REGISTER_OP fills it in; a library also fills in records for its
// class and typed operators. op/boundary/convert/op_conversion.hpp converts it to an opkit_op, and
// back to a record in the program that loads the library. Read-only after registration; several
// threads call its functions.
struct FunctionOpRecord : detail::RefCounted {
  std::string name;
  const char* file = "";
  int line = 0;
  std::string doc;
  std::string library;  // the library of the record; empty for the program itself
  // The name and version that the library announces: its own version, or that of its toolkit.
  std::string library_name, library_version;
  uint64_t flags = 0;  // OPKIT_OP_SUBGRAPH, …
  std::vector<FunctionDevice> devices;
  std::vector<std::pair<int, int>> inplace;  // {input, output}
  std::vector<detail::AttributeSchema> attributes;
  std::vector<detail::ValueSchema> inputs, outputs;

  // The functions of REGISTER_OP.
  ParseAttrsFunction parse_attrs;
  InferTypeFunction infer_type;
  InferShapeFunction infer_shape;
  MutateInputsFunction mutate_inputs;
  ScratchFunction scratch;
  FlopsFunction flops;
  // The record in the form of opkit_abi.h, for a record that crosses the boundary.
  opkit_op abi{};
  // detail::FunctionHooks, which a loaded library's operator uses instead of the functions.
  detail::IntrusivePtr<detail::RefCounted> hooks;

  // The library's use count. Every operator made of the record holds it, and so does every object
  // that may make further operators.
  detail::IntrusivePtr<detail::FunctionUse> in_use;
  std::string problem;  // the fault of the registration; reported when the operator is used

  // Returns the attributes of a node, with defaults for attributes that the node does not give.
  template <class From>
  AttrMap Attrs(const From& from) const {
    AttrMap attrs(from);
    for (const detail::AttributeSchema& declared : attributes)
      if (declared.default_value) attrs.AddDefault(declared.name, *declared.default_value);
    return attrs;
  }
  // Sets the numbers of a node's inputs and outputs: from parse_attrs if set, else from the
  // declared inputs and outputs.
  OpStatus CountValues(const AttrMap& attrs, int* num_in, int* num_out) {
    if (parse_attrs) return parse_attrs(attrs, num_in, num_out);
    if (!inputs.empty()) *num_in = static_cast<int>(inputs.size());
    if (!outputs.empty()) *num_out = static_cast<int>(outputs.size());
    return {};
  }
  bool Has(uint64_t flag) const { return (flags & flag) != 0; }
  // True if a record that came from a library has a backward function.
  bool HasBackward() const {
    for (const FunctionDevice& device : devices)
      if (device.abi.backward) return true;
    return false;
  }
};

namespace detail {
using FunctionRecord = IntrusivePtr<FunctionOpRecord>;
}  // namespace detail

// The builder that REGISTER_OP makes; fills in a record. Devices are "cpu" (the default), "gpu",
// "cpu_stream", or the name of your own device type. A setter accepts a function, a function
// pointer or a lambda.
//
//   int forward(std::map<std::string, std::string> attrs, std::vector<OpTensor> inputs,
//               std::vector<OpTensor> outputs, OpResource res);
//   REGISTER_OP(my_gemm).setForward(forward, "cpu").setBackward(backward, "cpu")
//       .setParseAttrs(parseAttrs).setInferType(inferType).setInferShape(inferShape);
//
// Attributes arrive in a map of strings, by value or const reference; tensors in a vector, by
// value, reference or pointer. The function returns int (1 is success), bool, ReturnValue, Status
// or void. The form that allocates nothing is
//   Status forward(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, OpResource&);
//
// Host receives the record and each addition to it: FunctionOpHost in a program, LibraryOpHost in a
// library.
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

  // Sets the function that computes the outputs. Output shapes come from inferShape; without it,
  // from the output tensors before the run.
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
  // Sets the function that computes the gradients of the inputs. Its tensors are the gradients of
  // the outputs, the inputs and the outputs, in this order. Registers the operator <name>_backward,
  // and the gradient of this operator.
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
  // Sets the function that makes the object that runs the operator. The object also computes the
  // gradient, with two exceptions: after setIsSubgraphOp() the graph's gradient is used, and after
  // noGradient() the operator has no gradient.
  //   int f(std::map<std::string, std::string> attrs, StatefulOp** state)
  //   int f(std::map<std::string, std::string> attrs, const OpContext& context, StatefulOp** state)
  //   int f(std::map<std::string, std::string> attrs, const OpContext& context,
  //         const std::vector<std::vector<unsigned int>>& in_shapes,
  //         const std::vector<int>& in_types, StatefulOp** state)
  // The last form, of MXNet 1.8, gets the shapes and dtypes of the operator's inputs. It is called
  // in the first run, and again in a run whose inputs have other shapes or dtypes: the new object
  // replaces the old one. A run fails if its object cannot be made.
  template <class F>
  BasicFunctionOpBuilder& setCreateOpState(F f, const char* device = "cpu") {
    static_assert(detail::kFits<CreateStateFunction, F>,
                  "setCreateOpState(f): write int f(std::map<std::string, std::string> attrs, "
                  "StatefulOp** state), with OpContext context in the middle if you need the "
                  "device, and const std::vector<std::vector<unsigned int>>& in_shapes, const "
                  "std::vector<int>& in_types behind it if you need these; "
                  "std::unique_ptr<StatefulOp>* also does for the state");
    OnDevice<FunctionPass::kForward>(device, "setCreateOpState", &FunctionDevice::create_state,
                                     std::move(f));
    return Guarded([&] {
      if (auto* added = FindDevice(Host::DeviceName(device, "setCreateOpState")))
        if (!record_->Has(OPKIT_OP_NO_GRADIENT) && !record_->Has(OPKIT_OP_SUBGRAPH))
          host_.template Add<FunctionPass::kBackward>(*added);
    });
  }
  // Declares that the operator has no gradient, for instance because its StatefulOp has no
  // Backward.
  BasicFunctionOpBuilder& noGradient() {
    record_->flags |= OPKIT_OP_NO_GRADIENT;
    return Guarded([&] {
      for (const FunctionDevice& device : record_->devices)
        CheckGradient(static_cast<bool>(device.backward));
      host_.NoGradient();
    });
  }
  // Declares an attribute of any type, of type T, or of the type of its default. The functions get
  // the default if a node does not give the attribute. After the first declaration a node may give
  // no undeclared attribute, unless allowUncheckedAttributes() is called.
  BasicFunctionOpBuilder& arg(const char* name, const char* doc) {
    return Declare({name, doc, false, {}, {}});
  }
  template <class T>
  BasicFunctionOpBuilder& arg(const char* name, const char* doc) {
    return Declare({name, doc, false, kAttributeTypeOf<T>, {}});
  }
  BasicFunctionOpBuilder& arg(const char* name, const char* doc, Attribute fallback) {
    return Declare({name, doc, false, fallback.type(), fallback});
  }
  // Declares an attribute that every node must give.
  template <class T>
  BasicFunctionOpBuilder& requiredArg(const char* name, const char* doc) {
    return Declare({name, doc, true, kAttributeTypeOf<T>, {}});
  }
  BasicFunctionOpBuilder& allowUncheckedAttributes() {
    return Guarded([&] { host_.OpenAttrs(); }).Set(OPKIT_OP_OPEN_ATTRS);
  }
  // Declares the next input or output: its name and, if limited, its dtypes. Without setParseAttrs
  // every node has exactly the declared inputs and outputs.
  BasicFunctionOpBuilder& input(const char* name, const char* doc = "",
                                std::vector<DType> dtypes = {}) {
    return Guarded([&] {
      host_.Input(record_->inputs.emplace_back(detail::ValueSchema{name, doc, std::move(dtypes)}));
    });
  }
  BasicFunctionOpBuilder& output(const char* name, const char* doc = "",
                                 std::vector<DType> dtypes = {}) {
    return Guarded([&] {
      host_.Output(
          record_->outputs.emplace_back(detail::ValueSchema{name, doc, std::move(dtypes)}));
    });
  }
  // Sets the function that computes the numbers of inputs and outputs from the attributes, and
  // refuses wrong attributes. A number may be -1, which allows any number; after setIsSubgraphOp()
  // it is then that of the node's graph. Both numbers are -1 without this function and without
  // declared inputs and outputs; a library's operator needs one of these, or setIsSubgraphOp().
  template <class F>
  BasicFunctionOpBuilder& setParseAttrs(F f) {
    static_assert(detail::kFits<ParseAttrsFunction, F>,
                  "setParseAttrs(f): write int f(std::map<std::string, std::string> attrs, int* "
                  "num_in, int* num_out)");
    return Once(record_->parse_attrs, "setParseAttrs", std::move(f));
  }
  // Sets the function that infers the outputs' dtypes from the inputs', or the reverse. Dtypes and
  // shapes have separate functions, unlike OpSchema's single Infer: MXNet's libraries have two
  // functions, opkit_abi.h calls them separately, and dtypes are often known before shapes. Dtypes
  // are numbers of DType; -1 is unknown. Without the function every output has the dtype of input
  // 0.
  template <class F>
  BasicFunctionOpBuilder& setInferType(F f) {
    static_assert(detail::kFits<InferTypeFunction, F>,
                  "setInferType(f): write int f(std::map<std::string, std::string> attrs, "
                  "std::vector<int>& intypes, std::vector<int>& outtypes)");
    host_.InfersTypes();
    return Once(record_->infer_type, "setInferType", std::move(f));
  }
  // Sets the function that infers the outputs' shapes from the inputs', or the reverse. An unknown
  // extent is -1 (as unsigned int the largest number); a value without any known shape has an empty
  // shape. While an input's shape is unknown, a failure means only that the shapes cannot be
  // inferred yet. A library's operator with outputs needs this function, unless it calls
  // allocatesOutputs().
  template <class F>
  BasicFunctionOpBuilder& setInferShape(F f) {
    static_assert(detail::kFits<InferShapeFunction, F>,
                  "setInferShape(f): write int f(std::map<std::string, std::string> attrs, "
                  "std::vector<std::vector<unsigned int>>& inshapes, "
                  "std::vector<std::vector<unsigned int>>& outshapes), or with int64_t");
    host_.InfersShapes();
    return Once(record_->infer_shape, "setInferShape", std::move(f));
  }
  // Sets the indices of the inputs that the operator writes to.
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
  // Requests scratch memory for every run, forward or backward. The size depends only on the
  // attributes and the shapes of the forward inputs, so that a plan can reserve it.
  BasicFunctionOpBuilder& scratch(int64_t bytes) {
    host_.NeedsScratch();
    return Once(record_->scratch, "scratch",
                [bytes](const AttrMap&, const ShapeVectors&) { return bytes; });
  }
  template <class F>
    requires(!std::is_arithmetic_v<F>)
  BasicFunctionOpBuilder& scratch(F f) {
    static_assert(detail::kFits<ScratchFunction, F>,
                  "scratch(f): write int64_t f(const AttrMap& attrs, const "
                  "std::vector<std::vector<int64_t>>& inshapes), or scratch(bytes)");
    host_.NeedsScratch();
    return Once(record_->scratch, "scratch", std::move(f));
  }
  // Sets the function that counts the floating-point operations of a run with known shapes; the
  // toolkit counts the bytes.
  template <class F>
  BasicFunctionOpBuilder& flops(F f) {
    static_assert(detail::kFits<FlopsFunction, F>,
                  "flops(f): write uint64_t f(const AttrMap& attrs, const "
                  "std::vector<std::vector<int64_t>>& inshapes, const "
                  "std::vector<std::vector<int64_t>>& outshapes)");
    Once(record_->flops, "flops", std::move(f));
    return Guarded([&] { host_.Cost(); });
  }
  // Adds pairs {input, output} that may share memory.
  BasicFunctionOpBuilder& inplace(std::initializer_list<std::pair<int, int>> pairs) {
    return Guarded([&] {
      for (const auto& pair : pairs) record_->inplace.push_back(pair);
    });
  }
  // Declares that every node carries a graph, which the functions run; a node without a graph is
  // refused. A node has as many inputs and outputs as its one graph, unless setParseAttrs or
  // declared inputs and outputs say another number. Without setBackward the operator's gradient is
  // the gradient of the graph.
  BasicFunctionOpBuilder& setIsSubgraphOp() {
    return Guarded([&] {
             host_.NeedsSubgraph();
             for (const FunctionDevice& device : record_->devices)
               if (device.backward) return;
             host_.DropBackward();  // setCreateOpState added this backward
           })
        .Set(OPKIT_OP_SUBGRAPH);
  }
  // Declares that the functions read strides(). Otherwise strided inputs arrive as dense copies.
  BasicFunctionOpBuilder& acceptsStrides() { return Set(OPKIT_OP_ACCEPTS_STRIDES); }
  // Declares that the functions handle OpReq::kAdd. Otherwise the toolkit adds their results.
  BasicFunctionOpBuilder& acceptsAdd() { return Set(OPKIT_OP_ACCEPTS_ADD); }
  // Declares that the work may end after forward has returned: forward calls OpResource::defer(),
  // and the holder of its result completes the run. Only for the CPU: on a stream the stream
  // completes the run.
  BasicFunctionOpBuilder& async() { return Set(OPKIT_OP_ASYNC); }
  // Declares that output shapes depend on the data. If inference cannot determine an output's
  // shape, the output has no dtype and no memory until forward calls OpResource::allocate_output.
  // Not for CPU streams, where the work runs after forward.
  BasicFunctionOpBuilder& allocatesOutputs() { return Set(OPKIT_OP_ALLOCATES_OUTPUTS); }
  // Declares that two runs on the same inputs may differ (random numbers), or that a run has an
  // effect beside its outputs: a graph never merges, folds or drops such nodes.
  BasicFunctionOpBuilder& stateful() {
    return Guarded([&] { host_.HasEffects(); }).Set(OPKIT_OP_EFFECTS);
  }
  BasicFunctionOpBuilder& doc(const char* doc) {
    return Guarded([&] {
      record_->doc = doc;
      host_.Doc();
    });
  }

 private:
  BasicFunctionOpBuilder& Declare(detail::AttributeSchema attribute) {
    return Guarded([&] {
      for (const detail::AttributeSchema& known : record_->attributes)
        if (known.name == attribute.name)
          Throw(ErrorCode::kInvalidArgument, "attribute '", known.name, "' is declared twice");
      host_.Attr(record_->attributes.emplace_back(std::move(attribute)));
    });
  }
  BasicFunctionOpBuilder& Set(uint64_t flag) {
    record_->flags |= flag;
    return *this;
  }
  // Keeps an error and reports it when the operator is used, because static initialisers must not
  // throw.
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
    } catch (...) {  // out of memory: the problem cannot be stored
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
  // Throws if the operator has a backward function but is declared to have no gradient.
  void CheckGradient(bool has_backward) const {
    if (has_backward && record_->Has(OPKIT_OP_NO_GRADIENT))
      Throw(ErrorCode::kInvalidArgument, "setBackward(f) and noGradient() contradict");
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
      CheckGradient(kPass == FunctionPass::kBackward);
      if (functions->*slot)
        Throw(ErrorCode::kInvalidArgument, setter, "(f, \"", name, "\") is called twice");
      functions->*slot = detail::AdaptTo<Function>(std::move(f));
      host_.template Add<kPass>(*functions);
    });
  }

  detail::FunctionRecord record_;
  Host host_;
};

}}  // namespace opkit

// REGISTER_OP(my_gemm).setForward(…)…; for namespace scope, in a source file or a header. In a unit
// that includes opkit/op.hpp the operator belongs to the library, else to the program. A program's
// operator has an anchor (op/registration.hpp), except if its name is no C++ identifier
// (com.me.Gemm, me::Gemm).
#undef OPKIT_REGISTER_OP  // the sentence of not_included.hpp
#define OPKIT_REGISTER_OP(name) OPKIT_REGISTER_OP_WITH(name, OPKIT_UNIQUE(opkit_anchor_))
#define OPKIT_REGISTER_OP_WITH(name, anchor)                                                 \
  OPKIT_AT_NAMESPACE_SCOPE(REGISTER_OP);                                                     \
  static_assert(::opkit::detail::IsOperatorName(#name),                                      \
                "REGISTER_OP(name): write the name without quotes or spaces, as my_gemm, "   \
                "com.me.Gemm or me::Gemm");                                                  \
  extern "C" __attribute__((visibility("hidden"))) void anchor() __asm__(                    \
      "opkit_add_OPERATOR_SCHEMA_for_" #name);                                               \
  extern "C" inline void anchor() {}                                                         \
  __attribute__((used)) static void (*const OPKIT_UNIQUE(opkit_keeps_anchor_))() =           \
      []<class Host = decltype(::opkit::detail::OpHost(0))>()->void(*)() {                   \
    if constexpr (::opkit::detail::HasAnchor<Host>(#name))                                   \
      return &anchor;                                                                        \
    else                                                                                     \
      return nullptr;                                                                        \
  }                                                                                          \
  ();                                                                                        \
  [[maybe_unused]] static const auto OPKIT_UNIQUE(opkit_function_op_) =                      \
      ::opkit::BasicFunctionOpBuilder<decltype(::opkit::detail::OpHost(0))>(#name, __FILE__, \
                                                                            __LINE__)

#endif  // OPKIT_OP_FUNCTION_OP_HPP_
