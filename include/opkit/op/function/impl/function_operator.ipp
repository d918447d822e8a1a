// FunctionOpHost's definitions: register records as operators of the program, with schema, kernels
// and gradient.
#ifndef OPKIT_OP_FUNCTION_IMPL_FUNCTION_OPERATOR_IPP_
#define OPKIT_OP_FUNCTION_IMPL_FUNCTION_OPERATOR_IPP_

#include <algorithm>

#include "opkit/device/cpu_stream.hpp"
#include "opkit/op/boundary/convert/op_conversion.hpp"
#include "opkit/op/call/operator_call.hpp"
#include "opkit/op/function/function_calls.hpp"
#include "opkit/op/function/function_operator.hpp"
#include "opkit/op/fusion.hpp"
#include "opkit/op/gradient/gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

OPKIT_INLINE DeviceTable<FunctionOperatorFactory>& FunctionFactories() {
  static constinit DeviceTable<FunctionOperatorFactory> table;
  return table;
}

// Makes the operators of a record. A lambda would have FunctionOpHost's hidden visibility, but the
// kernel that stores this object is not hidden.
struct FunctionOperatorCreator {
  FunctionRecord record;
  FunctionPass pass;
  size_t device;

  std::unique_ptr<OperatorBase> operator()(const OperatorDef& def, Workspace* ws,
                                           const KernelConfig* config) const {
    const FunctionOperatorFactory factory = FunctionFactories().Find(def.device().type);
    if (!factory)
      throw UnsupportedOperatorFeature(
          StrCat("function operators cannot run on ", def.device().type,
                 " in this program: include the header of its backend "
                 "(opkit/backends/<its name>/function_operator.hpp), or call "
                 "opkit::EnableFunctionOperators<Context>() for a device of your own"));
    return factory(def, ws, config, record, pass, device);
  }
};

// Makes the backward node of a function operator.
class FunctionGradient final : public GradientMakerBase {
 public:
  using GradientMakerBase::GradientMakerBase;
  FunctionRecord record;

  // Makes the node <name>_backward. Inputs that the operator writes to get no gradient.
  std::vector<OperatorDef> GetGradientDefs() override {
    const OperatorDef& def = Def();
    OperatorDef backward(def.type() + "_backward");
    for (size_t o = 0; o < def.outputs().size(); ++o) {
      const int output = static_cast<int>(o);
      backward.Input(GradOut(output).IsEmpty() ? std::string() : GO(output));
    }
    backward.Inputs(def.inputs()).Inputs(def.outputs());
    const std::vector<int> mutated = FunctionMutatedInputs(*record, def);
    for (size_t i = 0; i < def.inputs().size(); ++i) {
      const int input = static_cast<int>(i);
      const bool skipped = def.inputs()[i].empty() || std::ranges::count(mutated, input);
      backward.Output(skipped ? std::string() : GI(input));
    }
    for (const NamedAttribute& arg : def.args()) backward.Arg(arg.name, arg.value);
    // Checks every kernel, because any backend may run the node later.
    bool shares_state_with_backward = false;
    for (const Kernel* kernel : OpRegistry::Global().KernelsOf(def.type()))
      shares_state_with_backward |=
          kernel->shares_state_with_backward && kernel->device == def.device().type;
    if (shares_state_with_backward)
      backward.Arg(std::string(kStateArgument), FunctionStateBlob(def));
    backward.Device(def.device()).Backends(def.backends()).IsGradientOp(true);
    return {std::move(backward)};
  }
};

using SharedSchema = IntrusivePtr<Shared<OpSchema>>;
inline SharedSchema MakeFunctionSchema(const std::string& name, FunctionRecord record,
                                       FunctionPass pass) {
  auto made = MakeIntrusive<Shared<OpSchema>>(OpSchema(name, record->file, record->line));
  OpSchema& schema = made->value;
  schema.SetOrigin(record->library, record->library_name, record->library_version)
      .ArityFromArguments(
          [record, pass](const Arguments& args, std::span<const NamedSubgraph> graphs) {
            const auto [inputs, outputs] = FunctionArity(*record, args, graphs);
            if (pass == FunctionPass::kForward) return std::pair(inputs, outputs);
            const bool known = inputs >= 0 && outputs >= 0;
            return std::pair(known ? 2 * outputs + inputs : -1, inputs);
          })
      .Infer([record, pass](InferenceContext& context) {
        InferFunction(*record, record->Attrs(context.args()), pass, context);
      });
  if (!record->Has(OPKIT_OP_CLOSED_ATTRS)) schema.ParsesAttributes();
  if (pass == FunctionPass::kForward)
    schema
        .Inplace([record](int input, int output) {
          return std::ranges::count(record->inplace, std::pair(input, output)) > 0;
        })
        .MutatesInputs(
            [record](const OperatorDef& def) { return FunctionMutatedInputs(*record, def); });
  return made;
}

OPKIT_INLINE void FunctionOpHost::Begin(bool is_complete) {
  Enable();
  SharedSchema made = MakeFunctionSchema(record_->name, record_, FunctionPass::kForward);
  schema_ = &made->value;
  if (is_complete) Describe();
  OpRegistry::Global().AddSchema(std::move(made), *schema_);
}
OPKIT_INLINE void FunctionOpHost::Enable() {
  static_cast<void>(HostTable::Global());
  EnableFunctionOperators<CPUContext>();
  EnableFunctionOperators<CPUStreamContext>();
}
OPKIT_INLINE std::string FunctionOpHost::DeviceName(const char* name, const char* setter) {
  const int type = DeviceTypeFromName(name);
  if (type < 0)
    Throw(ErrorCode::kInvalidArgument, setter, "(f, \"", name,
          "\"): no device type has this name; \"cpu\", \"gpu\" and \"cpu_stream\" do");
  return ToString(static_cast<DeviceType>(type));
}
OPKIT_INLINE void FunctionOpHost::Add(FunctionDevice& device, FunctionPass pass,
                                      const std::string& backend) {
  device.type = static_cast<DeviceType>(DeviceTypeFromName(device.name));
  FunctionRecord record = record_;
  Kernel kernel;
  kernel.op = record->name;
  if (pass == FunctionPass::kBackward) {
    kernel.op += "_backward";
    if (!backward_added_) AddBackward();
  }
  // Nodes that leave a state for their backward node are neither merged nor folded.
  kernel.shares_state_with_backward =
      pass == FunctionPass::kForward && device.create_state && device.shares_state;
  if (kernel.shares_state_with_backward && schema_ && !schema_->is_stateful())
    schema_->KeepsState();
  kernel.device = device.type;
  if (!backend.empty()) kernel.backend = backend;
  kernel.owner = record->in_use;
  kernel.file = record->file;
  kernel.line = record->line;
  kernel.origin = record->library;
  const size_t place = Index(&device - record->devices.data());
  kernel.create = FunctionOperatorCreator{record, pass, place};
  kernel.proposes_layouts = pass == FunctionPass::kForward && device.propose;
  kernel.propose = [record, pass, place](const KernelQuery& query) {
    if (auto& propose = record->devices[place].propose; propose && pass == FunctionPass::kForward)
      return propose(query);
    KernelConfig config;
    const auto inputs = static_cast<int>(query.def.inputs().size());
    const auto outputs = static_cast<int>(query.def.outputs().size());
    for (const auto& pair : record->inplace)
      if (pass == FunctionPass::kForward && pair.first < inputs && pair.second < outputs)
        config.inplace.push_back(pair);
    config.scratch_bytes = FunctionScratch(*record, pass, query.def, query.inputs);
    return std::vector<KernelConfig>{std::move(config)};
  };
  if (kernel.proposes_layouts && device.fuse)
    kernel.fuse = [record, place](const FusionQuery& query) {
      return record->devices[place].fuse(query);
    };
  UseOperatorCalls();
  OpRegistry::Global().AddKernel(std::move(kernel));
}
OPKIT_INLINE void FunctionOpHost::Cost() {
  if (schema_)
    schema_->Cost([record = record_](const OperatorDef& def, const std::vector<TensorInfo>& inputs,
                                     const std::vector<TensorInfo>& outputs) {
      OpCost cost = OpSchema().Cost(def, inputs, outputs);
      FunctionCost(*record, def, inputs, outputs, cost);
      return cost;
    });
}
OPKIT_INLINE void FunctionOpHost::Input(const ValueSchema& added) {
  const auto i = static_cast<int>(&added - record_->inputs.data());
  if (schema_) schema_->Input(i, added.name, added.doc, added.dtypes);
}
OPKIT_INLINE void FunctionOpHost::Output(const ValueSchema& added) {
  const auto o = static_cast<int>(&added - record_->outputs.data());
  if (schema_) schema_->Output(o, added.name, added.doc, added.dtypes);
}
OPKIT_INLINE void FunctionOpHost::Describe() {
  Doc();
  bool keeps_state = record_->Has(OPKIT_OP_KEEPS_STATE);
  for (const FunctionDevice& device : record_->devices)
    keeps_state |= device.create_state && device.shares_state;
  if (keeps_state) schema_->KeepsState();
  if (record_->Has(OPKIT_OP_EFFECTS) && !record_->Has(OPKIT_OP_KEEPS_STATE)) HasEffects();
  if (record_->Has(OPKIT_OP_SUBGRAPH)) NeedsSubgraph();
  if (record_->abi.cost) Cost();
  if (record_->abi.test_inputs)
    schema_->TestInputs([record = record_](DType dtype, uint64_t seed) {
      return HooksOf(*record)->TestInputs(dtype, seed);
    });
  if (record_->Has(OPKIT_OP_OPEN_ATTRS)) OpenAttrs();
  for (const AttributeSchema& from : record_->attributes) Attr(from);
  for (const ValueSchema& from : record_->inputs) Input(from);
  for (const ValueSchema& from : record_->outputs) Output(from);
}
OPKIT_INLINE void FunctionOpHost::AddBackward() {
  backward_added_ = true;
  const std::string name = record_->name + "_backward";
  if (schema_ || !OpRegistry::Global().FindSchema(name)) {
    SharedSchema made = MakeFunctionSchema(name, record_, FunctionPass::kBackward);
    OpSchema& schema = made->value;
    schema.Doc("Gradients of the inputs of " + record_->name +
               ", from those of its outputs, its inputs and its outputs.");
    OpRegistry::Global().AddSchema(std::move(made), schema);
  }
  if (!schema_ && GradientRegistry::Global().Find(record_->name)) return;
  auto make = [record = record_](const OperatorDef& def, const std::vector<GradientValue>& g_output,
                                 GradientNames& names) {
    FunctionGradient maker(def, g_output);
    maker.record = record;
    maker.UseNames(&names);
    return maker.Get();
  };
  GradientRegistry::Global().Add(
      record_->name, {GradientKind::kMaker, std::move(make), record_->file, record_->line, {}});
}
OPKIT_INLINE void FunctionOpHost::DropBackward() {
  if (!std::exchange(backward_added_, false)) return;
  OpRegistry::Global().Remove(record_->name + "_backward");
  GradientRegistry::Global().Remove(record_->name);
}
OPKIT_INLINE void FunctionOpHost::NoGradient() {
  DropBackward();
  GradientRegistry::Global().Add(record_->name,
                                 {GradientKind::kNone, {}, record_->file, record_->line, {}});
}
OPKIT_INLINE void FunctionOpHost::Problem(const std::string& problem) {
  if (OpRegistry::Global().FindSchema(record_->name) == schema_)
    OpRegistry::Global().AddProblem(record_->name, problem);
}
}  // namespace detail

OPKIT_INLINE void SetOutputReq(OperatorBase& op, int output, OpReq req) {
  auto* functions = dynamic_cast<detail::FunctionRequests*>(&op);
  if (!functions)
    Throw(ErrorCode::kUnsupported, "operator ", op.type(),
          " takes no request for its outputs: it is not made of functions");
  functions->SetOutputReq(output, req);
}

}}  // namespace opkit

#endif  // OPKIT_OP_FUNCTION_IMPL_FUNCTION_OPERATOR_IPP_
