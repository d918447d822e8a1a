// Operators made of functions, in the program that runs them. FunctionOperator<Context> runs a
// record; FunctionOpHost registers its schema, kernels and gradient.
#ifndef OPKIT_OP_FUNCTION_FUNCTION_OPERATOR_HPP_
#define OPKIT_OP_FUNCTION_FUNCTION_OPERATOR_HPP_

#include "opkit/op/boundary/host/host_table.hpp"
#include "opkit/op/function/function_body.hpp"
#include "opkit/op/registration.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The operator that runs a record's functions. On an asynchronous device (cpu_stream, gpu) the
// functions are called when the work is issued, and put their own work on the stream.
template <class Context>
class FunctionOperator final : public Operator<Context>, public detail::FunctionRequests {
 public:
  // `device` is the index of its functions in the record's devices.
  FunctionOperator(const OperatorDef& def, Workspace* ws, const KernelConfig* config,
                   detail::FunctionRecord record, FunctionPass pass, size_t device)
      : Operator<Context>(def, ws, config),
        body_(detail::FunctionBody::Make(*this, std::move(record), pass, device)) {
    this->set_invocation_kind(Invocation::Kind::kCustomOperator);
    if constexpr (!Context::kAsynchronous) body_->SetLink(Link());
  }

  bool RunOnDevice() override {
    if constexpr (Context::kAsynchronous) body_->SetLink(Link());  // the stream of this run
    body_->Run();
    return true;
  }
  bool HasAsyncPart() const override { return Context::kAsynchronous || body_->is_async(); }
  bool InfersOutputs() const override { return true; }
  // The body itself copies strided inputs for functions that do not accept strides, because a run
  // that ends late must keep these copies.
  bool AcceptsStrides() const override { return true; }
  void SetOutputReq(int output, OpReq req) override { body_->SetReq(output, req); }

 private:
  detail::FunctionDeviceLink Link() {
    detail::FunctionDeviceLink link;
    link.asynchronous = Context::kAsynchronous;
    link.context = &this->context_;
    if constexpr (detail::NativeStreamContext<Context>)
      link.stream = this->context_.native_stream();
    else if constexpr (detail::StreamContext<Context>)
      link.stream = &this->context_.stream();
    if constexpr (Context::kAsynchronous)
      link.drain = [](void* context) { static_cast<Context*>(context)->FinishDeviceComputation(); };
    if constexpr (detail::HostContext<Context>) {
      link.launch = [](void* context, UniqueFunction<void()> work) {
        static_cast<Context*>(context)->Launch(std::move(work));
      };
    }
    return link;
  }

  const std::unique_ptr<detail::FunctionBody> body_;
};

namespace detail {

// Makes the operators of a device type; null if no header of its backend was included.
using FunctionOperatorFactory = std::unique_ptr<OperatorBase> (*)(const OperatorDef&, Workspace*,
                                                                  const KernelConfig*,
                                                                  FunctionRecord, FunctionPass,
                                                                  size_t device);
DeviceTable<FunctionOperatorFactory>& FunctionFactories();

}  // namespace detail

// Lets function operators run with Context, by one line in the header of a device:
//   [[maybe_unused]] inline const bool kNpuFunctions = EnableFunctionOperators<NpuContext>();
// `type` is another device type that Context serves.
template <DeviceContext Context>
bool EnableFunctionOperators(DeviceType type = Context::kDeviceType) {
  detail::FunctionFactories()[type].store(
      [](const OperatorDef& def, Workspace* ws, const KernelConfig* config,
         detail::FunctionRecord record, FunctionPass pass,
         size_t device) -> std::unique_ptr<OperatorBase> {
        return std::make_unique<FunctionOperator<Context>>(def, ws, config, std::move(record), pass,
                                                           device);
      },
      std::memory_order_release);
  return true;
}

// Sets how an operator stores the result of an output: OpReq::kWrite at first; kAdd adds it to the
// output's present elements, kNone skips it. Throws kUnsupported for an operator that is not made
// of functions.
void SetOutputReq(OperatorBase& op, int output, OpReq req);

namespace detail {

// Adds a record to the program's registries: a schema, kernels, and the gradient.
class FunctionOpHost {
 public:
  static constexpr bool kIsLibrary = false;
  explicit FunctionOpHost(FunctionRecord record) : record_(std::move(record)) {}

  // Enables functions on the CPU and CPU streams, and adds the schema. The setters fill in the
  // schema later, unless the record is complete.
  void Begin(bool is_complete = false);
  static void Enable();
  // Returns the device type's own name. Throws kInvalidArgument, naming `setter`, for an unknown
  // device type.
  static std::string DeviceName(const char* name, const char* setter);
  // Adds a kernel. An empty `backend` is the plain operator.
  void Add(FunctionDevice& device, FunctionPass pass, const std::string& backend = {});
  template <FunctionPass kPass>
  void Add(FunctionDevice& device) {
    Add(device, kPass);
  }
  // Do nothing: the program finds the functions of these setters in the record.
  void InfersTypes() {}
  void InfersShapes() {}
  void MutatesInputs() {}
  void NeedsScratch() {}
  void Doc() {
    if (schema_) schema_->Doc(record_->doc);
  }
  void Cost();
  void Attr(const AttributeSchema& attribute) {
    if (schema_) schema_->Arg(attribute);
  }
  void OpenAttrs() {
    if (schema_) schema_->AllowUncheckedAttributes();
  }
  // Adds a value of the record to the schema.
  void Input(const ValueSchema& added);
  void Output(const ValueSchema& added);
  void HasEffects() {
    if (schema_) schema_->Stateful();
  }
  void NeedsSubgraph() {
    if (schema_) schema_->NeedsSubgraph();
  }
  // Adds the operator <name>_backward and the gradient. For another backend of an existing
  // operator, keeps an existing gradient.
  void AddBackward();
  // Removes the operator <name>_backward and the gradient.
  void DropBackward();
  void NoGradient();
  // Adds the problem to the registry once, even if several translation units include the
  // registration.
  void Problem(const std::string& problem);
  OpSchema* schema() const { return schema_; }

 private:
  // Fills in the schema from the complete record.
  void Describe();

  FunctionRecord record_;
  OpSchema* schema_ = nullptr;
  bool backward_added_ = false;
};
FunctionOpHost OpHost(...);  // the host of REGISTER_OP, unless plugin/author.hpp declares another

}  // namespace detail

using FunctionOpBuilder = BasicFunctionOpBuilder<detail::FunctionOpHost>;

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/function/impl/function_operator.ipp"
#endif

#endif  // OPKIT_OP_FUNCTION_FUNCTION_OPERATOR_HPP_
