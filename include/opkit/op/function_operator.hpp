// REGISTER_OP: operators made of plain functions, the spelling that MXNet's loadable operators
// have. FunctionOperator<Context> runs their record; the builder turns it into a schema and
// kernels.
#ifndef OPKIT_OP_FUNCTION_OPERATOR_HPP_
#define OPKIT_OP_FUNCTION_OPERATOR_HPP_

#include "opkit/device/cpu_stream.hpp"
#include "opkit/op/function_body.hpp"
#include "opkit/op/gradient.hpp"

namespace opkit::inline OPKIT_ABI {

// Runs a record's functions. On an asynchronous device (cpu_stream, gpu) they are called when work
// is issued and put theirs on the stream.
template <class Context>
class FunctionOperator final : public Operator<Context>, public detail::FunctionRequests {
 public:
  FunctionOperator(const OperatorDef& def, Workspace* ws, detail::FunctionRecord record,
                   FunctionPass pass)
      : Operator<Context>(def, ws), body_(*this, std::move(record), pass) {
    this->set_invocation_kind(InvocationKind::kCustomOperator);
  }

  bool RunOnDevice() override {
    detail::FunctionDeviceLink link;
    link.asynchronous = Context::kAsynchronous;
    link.context = &this->context_;
    if constexpr (NativeStreamContext<Context>) {
      link.stream = this->context_.native_stream();
    } else if constexpr (StreamContext<Context>) {
      link.stream = &this->context_.stream();
    }
    if constexpr (HostContext<Context>) {
      link.launch = [](void* context, UniqueFunction<void()> work) {
        static_cast<Context*>(context)->Launch(std::move(work));
      };
    }
    body_.Run(link);
    return true;
  }
  bool InfersOutputs() const override { return true; }
  void SetOutputReq(int output, OpReq req) override { body_.SetReq(output, req); }

 private:
  detail::FunctionBody<FunctionOpRecord> body_;
};

namespace detail {

// How a device type runs function operators; null where no header of its backend was included.
using FunctionOperatorFactory = std::unique_ptr<OperatorBase> (*)(const OperatorDef&, Workspace*,
                                                                  FunctionRecord, FunctionPass);
inline std::atomic<FunctionOperatorFactory>& FunctionFactory(DeviceType type) {
  static std::atomic<FunctionOperatorFactory> factories[AllocatorTable::kSlots];
  const int slot = static_cast<int>(type);
  return factories[slot >= 0 && slot < AllocatorTable::kSlots ? slot : 0];
}

inline std::unique_ptr<OperatorBase> CreateFunctionOperator(const OperatorDef& def, Workspace* ws,
                                                            FunctionRecord record,
                                                            FunctionPass pass) {
  const FunctionOperatorFactory factory =
      FunctionFactory(def.device().type).load(std::memory_order_acquire);
  if (!factory)
    throw UnsupportedOperatorFeature(
        StrCat("function operators cannot run on ", def.device().type,
               " in this program: include the header of its backend "
               "(opkit/backends/<its name>/function_operator.hpp), or call "
               "opkit::EnableFunctionOperators<Context>() for a device of your own"));
  return factory(def, ws, std::move(record), pass);
}

// "cpu", "gpu" or any device type's own name; -1 for an unknown one.
inline int DeviceTypeFromName(std::string_view name) {
  if (name == "gpu") return static_cast<int>(DeviceType::kCUDA);
  DeviceTypeRegistry& registry = DeviceTypes();
  MutexLock lock(registry.mutex);
  for (const auto& entry : registry.entries)
    if (entry.info.name == name) return static_cast<int>(entry.type);
  return -1;
}

template <class Record, class Base>
class FunctionGradient final : public Base {
 public:
  FunctionGradient(const OperatorDef& def, std::vector<GradientValue> g_output,
                   IntrusivePtr<Record> record)
      : Base(def, std::move(g_output)), record_(std::move(record)) {}

  // Inputs that the operator writes to get no gradient.
  std::vector<OperatorDef> GetGradientDefs() override {
    const OperatorDef& def = this->Def();
    OperatorDef backward(def.type() + "_backward");
    for (size_t o = 0; o < def.outputs().size(); ++o) {
      const int output = static_cast<int>(o);
      backward.Input(this->GradOut(output).IsEmpty() ? std::string() : this->GO(output));
    }
    backward.Inputs(def.inputs()).Inputs(def.outputs());
    const std::vector<int> mutated = FunctionMutatedInputs(*record_, AttrMap(def.args()));
    for (size_t i = 0; i < def.inputs().size(); ++i) {
      const int input = static_cast<int>(i);
      bool skipped = def.inputs()[i].empty();
      for (int one : mutated) skipped |= one == input;
      backward.Output(skipped ? std::string() : this->GI(input));
    }
    const FunctionDevice* device = record_->Find(def.device().type);
    for (const NamedAttribute& arg : def.args()) backward.Arg(arg.name, arg.value);
    if (device && device->create_state) backward.Arg(kStateArgument, FunctionStateBlob(def));
    backward.Device(def.device()).Engine(def.engine()).IsGradientOp(true);
    return {std::move(backward)};
  }

 private:
  IntrusivePtr<Record> record_;
};

}  // namespace detail

// Lets function operators run with Context: one line in the header of a device.
//   [[maybe_unused]] inline const bool kNpuFunctions = EnableFunctionOperators<NpuContext>();
template <DeviceContext Context>
bool EnableFunctionOperators() {
  detail::FunctionFactory(Context::kDeviceType)
      .store(
          [](const OperatorDef& def, Workspace* ws, detail::FunctionRecord record,
             FunctionPass pass) -> std::unique_ptr<OperatorBase> {
            return std::make_unique<FunctionOperator<Context>>(def, ws, std::move(record), pass);
          },
          std::memory_order_release);
  return true;
}

// What the result of an output is to be: OpReq::kWrite at first; kAdd adds to what the output
// holds, kNone leaves it out. Error (kUnsupported) for an operator that is not made of functions.
inline void SetOutputReq(OperatorBase& op, int output, OpReq req) {
  auto* functions = dynamic_cast<detail::FunctionRequests*>(&op);
  if (!functions)
    Throw(ErrorCode::kUnsupported, "operator ", op.type(),
          " takes no request for its outputs: it "
          "is not made of functions");
  functions->SetOutputReq(output, req);
}

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
// Contexts are those that every program can run functions with. A template, so that the toolkit's
// side of function operators is compiled only where one is registered.
template <class Record, class... Contexts>
class BasicFunctionOpBuilder {
 public:
  BasicFunctionOpBuilder(const char* name, const char* file, int line) noexcept
      : record_(new Record) {
    Guarded([&] {
      (EnableFunctionOperators<Contexts>(), ...);
      record_->name = name;
      record_->file = file;
      record_->line = line;
      schema_ = AddSchema(record_->name, FunctionPass::kForward);
    });
  }

  // Computes the outputs. Their shapes are those that inferShape says; without it, those that the
  // output tensors have before the run.
  template <class F>
  BasicFunctionOpBuilder& setForward(F f, const char* device = "cpu") {
    static_assert(detail::kIsForward<F>,
                  "setForward(f): write int f(std::map<std::string, std::string> attrs, "
                  "std::vector<OpTensor> inputs, std::vector<OpTensor> outputs, OpResource res) or "
                  "Status f(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, "
                  "OpResource&)");
    if constexpr (detail::kIsForward<F>)
      OnDevice(device, "setForward", &FunctionDevice::forward, FunctionPass::kForward,
               detail::MakeForward(std::move(f), detail::FunctionParameters<F>{}));
    return *this;
  }
  // Computes the gradients of the inputs from those of the outputs, the inputs and the outputs, in
  // this order: the operator <name>_backward, and the gradient of this one.
  template <class F>
  BasicFunctionOpBuilder& setBackward(F f, const char* device = "cpu") {
    static_assert(detail::kIsForward<F>,
                  "setBackward(f): write int f(std::map<std::string, std::string> attrs, "
                  "std::vector<OpTensor> inputs, std::vector<OpTensor> outputs, OpResource res) or "
                  "Status f(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, "
                  "OpResource&)");
    if constexpr (detail::kIsForward<F>)
      OnDevice(device, "setBackward", &FunctionDevice::backward, FunctionPass::kBackward,
               detail::MakeForward(std::move(f), detail::FunctionParameters<F>{}));
    return *this;
  }
  // Makes the object that runs the operator. It is also asked for the gradient.
  template <class F>
  BasicFunctionOpBuilder& setCreateOpState(F f, const char* device = "cpu") {
    static_assert(detail::kIsCreateState<F>,
                  "setCreateOpState(f): write int f(std::map<std::string, std::string> attrs, "
                  "StatefulOp** state), with OpContext context in the middle if you need the "
                  "device; std::unique_ptr<StatefulOp>* also does for the state");
    if constexpr (detail::kIsCreateState<F>) {
      OnDevice(device, "setCreateOpState", &FunctionDevice::create_state, FunctionPass::kForward,
               detail::MakeCreateState(std::move(f), detail::FunctionParameters<F>{}));
      Guarded([&] { RegisterKernel(detail::DeviceTypeFromName(device), FunctionPass::kBackward); });
    }
    return *this;
  }
  // Says how many inputs and outputs a node with these attributes has, and refuses wrong
  // attributes. Without it any number goes.
  template <class F>
  BasicFunctionOpBuilder& setParseAttrs(F f) {
    static_assert(detail::kIsParseAttrs<F>,
                  "setParseAttrs(f): write int f(std::map<std::string, std::string> attrs, int* "
                  "num_in, int* num_out)");
    if constexpr (detail::kIsParseAttrs<F>)
      Once(record_->parse_attrs, "setParseAttrs",
           detail::MakeParseAttrs(std::move(f), detail::FunctionParameters<F>{}));
    return *this;
  }
  // DTypes of outputs from those of inputs, or the reverse; numbers of DType, -1 for unknown.
  // Without it every output has the dtype of input 0.
  template <class F>
  BasicFunctionOpBuilder& setInferType(F f) {
    static_assert(detail::kIsInferType<F>,
                  "setInferType(f): write int f(std::map<std::string, std::string> attrs, "
                  "std::vector<int>& intypes, std::vector<int>& outtypes)");
    if constexpr (detail::kIsInferType<F>)
      Once(record_->infer_type, "setInferType",
           detail::MakeInferType(std::move(f), detail::FunctionParameters<F>{}));
    return *this;
  }
  // Shapes of outputs from those of inputs, or the reverse. Unknown are an extent of -1 (the
  // largest number as unsigned int) and, where the value has not been seen yet, an empty shape.
  // While something is unknown a failure means that nothing can be said yet.
  template <class F>
  BasicFunctionOpBuilder& setInferShape(F f) {
    static_assert(detail::kIsInferShape<F>,
                  "setInferShape(f): write int f(std::map<std::string, std::string> attrs, "
                  "std::vector<std::vector<unsigned int>>& inshapes, "
                  "std::vector<std::vector<unsigned int>>& outshapes), or with int64_t");
    if constexpr (detail::kIsInferShape<F>)
      Once(record_->infer_shape, "setInferShape",
           detail::MakeInferShape(std::move(f), detail::FunctionParameters<F>{}));
    return *this;
  }
  // Inputs that are written to.
  template <class F>
  BasicFunctionOpBuilder& setMutateInputs(F f) {
    static_assert(detail::kIsMutateInputs<F>,
                  "setMutateInputs(f): write int f(std::map<std::string, std::string> attrs, "
                  "std::vector<int>& input_indices), or setMutateInputs({0, 2})");
    if constexpr (detail::kIsMutateInputs<F>)
      Once(record_->mutate_inputs, "setMutateInputs",
           detail::MakeMutateInputs(std::move(f), detail::FunctionParameters<F>{}));
    return *this;
  }
  BasicFunctionOpBuilder& setMutateInputs(std::initializer_list<int> inputs) {
    Once(record_->mutate_inputs, "setMutateInputs",
         MutateInputsFunction(
             [list = std::vector<int>(inputs)](const AttrMap&, std::vector<int>& out) -> OpStatus {
               out = list;
               return {};
             }));
    return *this;
  }
  // Memory for the whole of a run, known before it, so that a plan can hold it.
  BasicFunctionOpBuilder& setScratch(int64_t bytes) {
    Once(record_->scratch, "setScratch",
         ScratchFunction([bytes](const AttrMap&, const ShapeVectors&) { return bytes; }));
    return *this;
  }
  template <class F>
    requires(!std::is_arithmetic_v<F>)
  BasicFunctionOpBuilder& setScratch(F f) {
    static_assert(detail::kIsScratch<F>,
                  "setScratch(f): write int64_t f(const AttrMap& attrs, const "
                  "std::vector<std::vector<int64_t>>& inshapes), or setScratch(bytes)");
    if constexpr (detail::kIsScratch<F>)
      Once(record_->scratch, "setScratch",
           detail::MakeScratch(std::move(f), detail::FunctionParameters<F>{}));
    return *this;
  }
  // Pairs {input, output} that may share memory.
  BasicFunctionOpBuilder& setInplace(std::initializer_list<std::pair<int, int>> pairs) {
    Guarded([&] { record_->inplace.insert(record_->inplace.end(), pairs.begin(), pairs.end()); });
    return *this;
  }
  BasicFunctionOpBuilder& setIsSubgraphOp() { return record_->is_subgraph_op = true, *this; }
  // The functions respect strides(). Otherwise strided inputs arrive as dense copies.
  BasicFunctionOpBuilder& setAcceptStrides() { return record_->accepts_strides = true, *this; }
  // The functions respect OpReq::kAdd. Otherwise the toolkit adds their results up.
  BasicFunctionOpBuilder& setAcceptAdd() { return record_->accepts_add = true, *this; }
  BasicFunctionOpBuilder& setDoc(const char* doc) {
    Guarded([&] {
      if (schema_) schema_->SetDoc(doc);
    });
    return *this;
  }

 private:
  // Static initialisers must not throw: what is wrong is kept for whoever uses the operator.
  template <class F>
  void Guarded(F call) noexcept {
    try {
      call();
    } catch (const std::exception& error) {
      AddProblem(error.what());
    } catch (...) {
      AddProblem("it threw something that is not a std::exception");
    }
  }
  void AddProblem(const std::string& text) noexcept {
    try {
      std::string problem = StrCat("REGISTER_OP(", record_->name, ") at ", record_->file, ":",
                                   record_->line, ": ", text);
      // A header's registration is listed once, however many translation units see it.
      if (OpRegistry::Global().FindSchema(record_->name) == schema_)
        OpRegistry::Global().AddProblem(record_->name, problem);
      if (record_->problem.empty()) record_->problem = std::move(problem);
    } catch (...) {  // no memory to report it in
    }
  }
  template <class Function>
  void Once(Function& slot, const char* setter, Function function) {
    if (slot) return AddProblem(StrCat(setter, " is called twice"));
    slot = std::move(function);
  }
  template <class Function>
  void OnDevice(const char* device, const char* setter, Function FunctionDevice::*slot,
                FunctionPass pass, Function function) {
    Guarded([&] {
      const int type = detail::DeviceTypeFromName(device);
      if (type < 0)
        Throw(ErrorCode::kInvalidArgument, setter, "(f, \"", device,
              "\"): no device type has this "
              "name; \"cpu\", \"gpu\" and \"cpu_stream\" do");
      FunctionDevice* functions = record_->Find(static_cast<DeviceType>(type));
      if (!functions) {
        functions = &record_->devices.emplace_back();
        functions->type = static_cast<DeviceType>(type);
      }
      if (functions->*slot)
        Throw(ErrorCode::kInvalidArgument, setter, "(f, \"", device, "\") is called twice");
      functions->*slot = std::move(function);
      RegisterKernel(type, pass);
    });
  }

  void RegisterKernel(int type, FunctionPass pass) {
    if (type < 0) return;
    detail::IntrusivePtr<Record> record = record_;
    Kernel kernel;
    kernel.op = record->name;
    if (pass == FunctionPass::kBackward) {
      kernel.op += "_backward";
      if (!backward_added_) AddBackward();
    }
    kernel.device = static_cast<DeviceType>(type);
    kernel.file = record->file;
    kernel.line = record->line;
    kernel.origin = record->library;
    kernel.create = [record, pass](const OperatorDef& def, Workspace* ws) {
      return detail::CreateFunctionOperator(def, ws, record, pass);
    };
    kernel.propose = [record, pass](const KernelQuery& query) {
      KernelConfig config;
      if (pass == FunctionPass::kForward) config.inplace = record->inplace;
      bool known = true;
      for (const TensorInfo& input : query.inputs) known &= input.shape.is_known();
      if (known)
        config.scratch_bytes =
            detail::FunctionScratch(*record, AttrMap(query.def.args()), query.inputs);
      return std::vector<KernelConfig>{std::move(config)};
    };
    OpRegistry::Global().AddKernel(std::move(kernel));
  }
  OpSchema* AddSchema(const std::string& name, FunctionPass pass) {
    detail::IntrusivePtr<Record> record = record_;
    OpSchema& schema = OpRegistry::Global().AddSchema(name.c_str(), record->file, record->line);
    schema
        .ArityFromArguments([record, pass](const Arguments& args) {
          const auto [inputs, outputs] = detail::FunctionArity(*record, AttrMap(args));
          if (pass == FunctionPass::kForward) return std::pair(inputs, outputs);
          const bool known = inputs >= 0 && outputs >= 0;
          return std::pair(known ? 2 * outputs + inputs : -1, inputs);
        })
        .TensorInferenceFunction([record, pass](InferenceContext& context) {
          detail::InferFunction(*record, AttrMap(context.args()), pass, context);
        });
    if (pass == FunctionPass::kForward)
      schema
          .AllowInplace([record](int input, int output) {
            for (const auto& pair : record->inplace)
              if (pair.first == input && pair.second == output) return true;
            return false;
          })
          .MutatesInputs([record](const Arguments& args) {
            return detail::FunctionMutatedInputs(*record, AttrMap(args));
          });
    return &schema;
  }
  void AddBackward() {
    backward_added_ = true;
    AddSchema(record_->name + "_backward", FunctionPass::kBackward)
        ->SetDoc("Gradients of the inputs of " + record_->name +
                 ", from those of its outputs, its inputs and its outputs.");
    GradientRegistration gradient;
    gradient.file = record_->file;
    gradient.line = record_->line;
    gradient.make = [record = record_](const OperatorDef& def,
                                       const std::vector<GradientValue>& g_output,
                                       GradientNames& names) {
      detail::FunctionGradient<Record, GradientMakerBase> maker(def, g_output, record);
      maker.UseNames(&names);
      return maker.Get();
    };
    BasicGradientRegistry<GradientRegistration>::Global().Add(record_->name, std::move(gradient));
  }

  detail::IntrusivePtr<Record> record_;
  OpSchema* schema_ = nullptr;
  bool backward_added_ = false;
};
using FunctionOpBuilder = BasicFunctionOpBuilder<FunctionOpRecord, CPUContext, CPUStreamContext>;

}  // namespace opkit

// REGISTER_OP(my_gemm).setForward(…)…; at namespace scope, in a source file or a header.
#define OPKIT_REGISTER_OP(name)                                                               \
  extern "C" __attribute__((weak, visibility("hidden"))) void OPKIT_SCHEMA_ANCHOR(name)() {}  \
  [[maybe_unused]] static const ::opkit::FunctionOpBuilder OPKIT_UNIQUE(opkit_function_op_) = \
      ::opkit::FunctionOpBuilder(#name, __FILE__, __LINE__)

#endif  // OPKIT_OP_FUNCTION_OPERATOR_HPP_
