// Loads the operators of this program as a library, and calls them by name.
#ifndef OPKIT_PLUGIN_IMPL_TESTING_IPP_
#define OPKIT_PLUGIN_IMPL_TESTING_IPP_

#include "opkit/op/create_operator.hpp"
#include "opkit/plugin/export/export_operators.hpp"  // its definitions, for an OPKIT_IMPLEMENTATION
#include "opkit/plugin/testing.hpp"

// Defined by the source under test if that includes author.hpp, else null.
extern "C" __attribute__((weak, visibility("default"))) const opkit_library* opkit_library_entry(
    const opkit_host* host);

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline OperatorDef TestNode(const std::string& op, const std::vector<int>& inputs,
                            const Arguments& args, int num_outputs) {
  testing::Load();
  const OpSchema& schema = OpRegistry::Global().GetSchema(op);
  OperatorDef def(op, {}, {}, args);
  for (size_t i = 0; i < inputs.size(); ++i)
    def.Input(inputs[i] ? StrCat("input", i) : std::string());
  num_outputs = CountOutputs(schema, inputs.size(), args, num_outputs, "say how many");
  for (int o = 0; o < num_outputs; ++o) def.Output(StrCat("output", o));
  CheckNode(schema, def);
  return def;
}

}  // namespace detail

namespace testing {

OPKIT_INLINE Library Load() {
  static const Library library = [] {
    opkit_library_entry_function entry = &opkit_library_entry;
    if (!entry)
      Throw(ErrorCode::kNotFound,
            "this program has no operators to test: include or link a source that includes "
            "opkit/plugin/author.hpp");
    return Library::LoadEntry(entry, "(this program)", {.backend = "under_test"});
  }();
  return library;
}

OPKIT_INLINE std::vector<TensorInfo> Infer(const std::string& op,
                                           const std::vector<TensorInfo>& inputs,
                                           const Arguments& args, int num_outputs) {
  const OperatorDef def =
      detail::TestNode(op, std::vector<int>(inputs.size(), 1), args, num_outputs);
  return OpRegistry::Global().GetSchema(op).InferOutputs(def, inputs);
}

OPKIT_INLINE std::vector<Tensor> Forward(const std::string& op, const std::vector<Tensor>& inputs,
                                         const Arguments& args, const InvokeOptions& options) {
  Load();
  return Invoke(op, inputs, args, options);
}

OPKIT_INLINE std::vector<Tensor> Backward(const std::string& op, const std::vector<Tensor>& inputs,
                                          const std::vector<Tensor>& output_gradients,
                                          const Arguments& args, Device device) {
  OperatorDef def = detail::TestNode(op, detail::PresentInputs(inputs), args,
                                     static_cast<int>(output_gradients.size()));
  def.Device(device);
  Workspace ws;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!def.inputs()[i].empty()) *ws.CreateTensor(def.inputs()[i]) = inputs[i];
  const auto forward = CreateOperator(def, &ws);  // kept: its gradient may need its state
  forward->Run();
  GradientNames names;
  names.ReserveNamesOf(def, {});
  std::vector<GradientValue> g_output(output_gradients.size());
  for (size_t o = 0; o < g_output.size(); ++o) {
    if (output_gradients[o].dtype() == DType::kUndefined) continue;
    g_output[o] = names.Of(def.outputs()[o]);
    *ws.CreateTensor(g_output[o].dense) = output_gradients[o];
  }
  const GradientOpsMeta gradient = GetGradientForOp(def, g_output, names);
  for (const OperatorDef& one : gradient.ops) CreateOperator(one, &ws)->Run();
  std::vector<Tensor> results;
  for (const GradientValue& value : gradient.g_input) {
    if (value.IsSparse())
      Throw(ErrorCode::kUnsupported, "the gradient of input ", results.size(), " of ",
            ToString(def), " is sparse, ", value, "; run GetGradientForOp's operators yourself");
    results.push_back(value.IsEmpty() ? Tensor() : *ws.GetTensor(value.dense));
  }
  return results;
}

OPKIT_INLINE GradientCheckResult CheckGradient(const std::string& op,
                                               const std::vector<Tensor>& inputs,
                                               const Arguments& args,
                                               const GradientCheckOptions& options) {
  const OperatorDef def = detail::TestNode(op, detail::PresentInputs(inputs), args, -1);
  return ::opkit::CheckGradient(def, inputs, options);
}

OPKIT_INLINE CheckReport CheckOperator(const std::string& op, const CheckOptions& options) {
  Load();
  return ::opkit::CheckOperator(op, options);
}
OPKIT_INLINE CheckReport CheckOperator(const std::string& op, const std::vector<Tensor>& inputs,
                                       const Arguments& args, const CheckOptions& options) {
  const OperatorDef def =
      detail::TestNode(op, detail::PresentInputs(inputs), args, options.num_outputs);
  return ::opkit::CheckOperator(def, inputs, options);
}
OPKIT_INLINE CheckReport CheckOperator(const std::string& op, std::initializer_list<Tensor> inputs,
                                       const Arguments& args, const CheckOptions& options) {
  return CheckOperator(op, std::vector<Tensor>(inputs), args, options);
}

}  // namespace testing
}}  // namespace opkit

#endif  // OPKIT_PLUGIN_IMPL_TESTING_IPP_
