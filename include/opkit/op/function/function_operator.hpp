// Operators made of functions, in the program that runs them: FunctionOperator<Context> runs a
// record, and FunctionOpHost turns it into a schema, kernels and a gradient.
#ifndef OPKIT_OP_FUNCTION_FUNCTION_OPERATOR_HPP_
#define OPKIT_OP_FUNCTION_FUNCTION_OPERATOR_HPP_

#include "opkit/device/cpu_stream.hpp"
#include "opkit/op/function/function_body.hpp"
#include "opkit/op/gradient/gradient.hpp"

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
    if constexpr (!Context::kAsynchronous) body_.SetLink(Link());
  }

  bool RunOnDevice() override {
    if constexpr (Context::kAsynchronous) body_.SetLink(Link());  // the stream of this run
    body_.Run();
    return true;
  }
  bool HasAsyncPart() const override { return Context::kAsynchronous || body_.is_async(); }
  bool InfersOutputs() const override { return true; }
  void SetOutputReq(int output, OpReq req) override { body_.SetReq(output, req); }

 private:
  detail::FunctionDeviceLink Link() {
    detail::FunctionDeviceLink link;
    link.asynchronous = Context::kAsynchronous;
    link.context = &this->context_;
    if constexpr (NativeStreamContext<Context>) {
      link.stream = this->context_.native_stream();
    } else if constexpr (StreamContext<Context>) {
      link.stream = &this->context_.stream();
    }
    if constexpr (Context::kAsynchronous)
      link.drain = [](void* context) { static_cast<Context*>(context)->FinishDeviceComputation(); };
    if constexpr (HostContext<Context>) {
      link.launch = [](void* context, UniqueFunction<void()> work) {
        static_cast<Context*>(context)->Launch(std::move(work));
      };
    }
    return link;
  }

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
  return name == "gpu" ? static_cast<int>(DeviceType::kGPU) : FindDeviceType(name);
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
    const std::vector<int> mutated = FunctionMutatedInputs(*record_, def);
    for (size_t i = 0; i < def.inputs().size(); ++i) {
      const int input = static_cast<int>(i);
      bool skipped = def.inputs()[i].empty();
      for (int one : mutated) skipped |= one == input;
      backward.Output(skipped ? std::string() : this->GI(input));
    }
    for (const NamedAttribute& arg : def.args()) backward.Arg(arg.name, arg.value);
    // Whichever backend is going to run the node.
    bool leaves_state = false;
    for (const Kernel* kernel : OpRegistry::Global().KernelsOf(def.type()))
      leaves_state |= kernel->leaves_state && kernel->device == def.device().type;
    if (leaves_state) backward.Arg(kStateArgument, FunctionStateBlob(def));
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

namespace detail {

// Takes a record into the program's registries: a schema, kernels, and the gradient. Contexts are
// those that every program can run functions with.
template <class Record, class... Contexts>
class FunctionOpHost {
 public:
  explicit FunctionOpHost(IntrusivePtr<Record> record) : record_(std::move(record)) {}

  void Begin() {
    Enable();
    schema_ = AddSchema(record_->name, FunctionPass::kForward);
  }
  static void Enable() {
    static_cast<void>(ProgramHost());
    (EnableFunctionOperators<Contexts>(), ...);
  }
  static std::string DeviceName(const char* name, const char* setter) {
    const int type = DeviceTypeFromName(name);
    if (type < 0)
      Throw(ErrorCode::kInvalidArgument, setter, "(f, \"", name,
            "\"): no device type has this "
            "name; \"cpu\", \"gpu\" and \"cpu_stream\" do");
    return ToString(static_cast<DeviceType>(type));
  }
  // `backend`: empty for the plain one.
  void Add(FunctionDevice& device, FunctionPass pass, const std::string& backend = {}) {
    device.type = static_cast<DeviceType>(DeviceTypeFromName(device.name));
    IntrusivePtr<Record> record = record_;
    Kernel kernel;
    kernel.op = record->name;
    if (pass == FunctionPass::kBackward) {
      kernel.op += "_backward";
      if (!backward_added_) AddBackward();
    }
    // Nodes that leave a state for their backward are neither merged nor folded.
    kernel.leaves_state =
        pass == FunctionPass::kForward && device.create_state && device.shares_state;
    if (kernel.leaves_state && schema_) schema_->KeepsState();
    kernel.device = device.type;
    if (!backend.empty()) kernel.backend = backend;
    kernel.owner = record->in_use;
    kernel.file = record->file;
    kernel.line = record->line;
    kernel.origin = record->library;
    kernel.create = [record, pass](const OperatorDef& def, Workspace* ws) {
      return detail::CreateFunctionOperator(def, ws, record, pass);
    };
    kernel.propose = [record, pass](const KernelQuery& query) {
      KernelConfig config;
      const auto inputs = static_cast<int>(query.def.inputs().size());
      const auto outputs = static_cast<int>(query.def.outputs().size());
      for (const auto& pair : record->inplace)
        if (pass == FunctionPass::kForward && pair.first < inputs && pair.second < outputs)
          config.inplace.push_back(pair);
      config.scratch_bytes = detail::FunctionScratch(*record, pass, query.def, query.inputs);
      return std::vector<KernelConfig>{std::move(config)};
    };
    OpRegistry::Global().AddKernel(std::move(kernel));
  }
  void Doc() {
    if (schema_) schema_->SetDoc(record_->doc);
  }
  OpSchema* schema() const { return schema_; }
  // The operator <name>_backward, and with it the gradient. Of another backend of an operator that
  // exists what is there already stays.
  void AddBackward() {
    backward_added_ = true;
    const std::string name = record_->name + "_backward";
    if (schema_ || !OpRegistry::Global().FindSchema(name))
      AddSchema(name, FunctionPass::kBackward)
          ->SetDoc("Gradients of the inputs of " + record_->name +
                   ", from those of its outputs, its inputs and its outputs.");
    if (!schema_ && GradientRegistry::Global().Find(record_->name)) return;
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
  void HasEffects() {
    if (schema_) schema_->Stateful();
  }
  void NoGradient() {
    if (backward_added_) {
      OpRegistry::Global().Remove(record_->name + "_backward");
      GradientRegistry::Global().Remove(record_->name);
    }
    GradientRegistration none;
    none.kind = GradientKind::kNone;
    none.file = record_->file;
    none.line = record_->line;
    GradientRegistry::Global().Add(record_->name, std::move(none));
  }
  // A header's registration is listed once, however many translation units see it.
  void Problem(const std::string& problem) {
    if (OpRegistry::Global().FindSchema(record_->name) == schema_)
      OpRegistry::Global().AddProblem(record_->name, problem);
  }

 private:
  OpSchema* AddSchema(const std::string& name, FunctionPass pass) {
    detail::IntrusivePtr<Record> record = record_;
    OpSchema& schema = OpRegistry::Global().AddSchema(name.c_str(), record->file, record->line);
    schema.SetOrigin(record->library)
        .ArityFromArguments([record, pass](const Arguments& args) {
          const auto [inputs, outputs] = detail::FunctionArity(*record, args);
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
          .MutatesInputs([record](const OperatorDef& def) {
            return detail::FunctionMutatedInputs(*record, def);
          });
    return &schema;
  }
  IntrusivePtr<Record> record_;
  OpSchema* schema_ = nullptr;
  bool backward_added_ = false;
};

}  // namespace detail

using FunctionOpBuilder =
    BasicFunctionOpBuilder<FunctionOpRecord,
                           detail::FunctionOpHost<FunctionOpRecord, CPUContext, CPUStreamContext>>;

}  // namespace opkit

#ifndef OPKIT_PLUGIN_AUTHOR_HPP_  // in a unit that includes it REGISTER_OP is the library's
// REGISTER_OP(my_gemm).setForward(…)…; at namespace scope, in a source file or a header.
#define OPKIT_REGISTER_OP(name)                                                               \
  extern "C" __attribute__((weak, visibility("hidden"))) void OPKIT_SCHEMA_ANCHOR(name)() {}  \
  [[maybe_unused]] static const ::opkit::FunctionOpBuilder OPKIT_UNIQUE(opkit_function_op_) = \
      ::opkit::FunctionOpBuilder(#name, __FILE__, __LINE__)
#endif

#endif  // OPKIT_OP_FUNCTION_FUNCTION_OPERATOR_HPP_
