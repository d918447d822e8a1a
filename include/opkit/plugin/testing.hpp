// Tests of operators without a host program: a unit test that includes or links the source of a
// library calls inference, forward, backward and the checkers by the operator's name. The
// operators are loaded from this program by the same calls that load a shared object, so what they
// answer and how they fail is as in production. Needs no test framework.
//
//   #include "my_ops.cc"                                  // or link it
//   #include <opkit/plugin/testing.hpp>
//   using namespace opkit;
//   std::vector<Tensor> c = testing::Forward("my_gemm", {a, b}, {{"alpha", 2.f}});
//   std::vector<Tensor> d = testing::Backward("my_gemm", {a, b}, {dc}, {{"alpha", 2.f}});
//   assert(testing::CheckGradient("my_gemm", {a, b}).ok());
//   assert(testing::CheckOperator("my_relu").ok());
#ifndef OPKIT_PLUGIN_TESTING_HPP_
#define OPKIT_PLUGIN_TESTING_HPP_

#include "opkit/op/check.hpp"
#include "opkit/op/gradient/gradient_check.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/plugin/library.hpp"

// Defined by the source under test, where it includes author.hpp; null without one.
extern "C" __attribute__((weak, visibility("default"))) const opkit_library* opkit_library_entry(
    const opkit_host* host);

namespace opkit::inline OPKIT_ABI {
namespace testing {

// The operators of this program's own sources, loaded at the first call. Every function below calls
// it; call it yourself before what else looks operators up (Invoke, CreateOperator, graphs).
// Errors: as Library::Load; kNotFound where no source includes author.hpp.
inline Library Load() {
  static const Library library = [] {
    opkit_library_entry_function entry = &opkit_library_entry;
    if (!entry)
      Throw(ErrorCode::kNotFound,
            "this program has no operators to test: include or link a source that includes "
            "opkit/plugin/author.hpp");
    LoadOptions options;
    options.backend = "under_test";
    return Library::LoadEntry(entry, "(this program)", options);
  }();
  return library;
}

}  // namespace testing

namespace detail {

// A node of the operator, with values of its own.
inline OperatorDef TestNode(const std::string& op, const std::vector<bool>& inputs,
                            const Arguments& args, int num_outputs) {
  testing::Load();
  const OpSchema& schema = OpRegistry::Global().GetSchema(op);
  OperatorDef def(op, {}, {}, args);
  for (size_t i = 0; i < inputs.size(); ++i)
    def.Input(inputs[i] ? StrCat("input", i) : std::string());
  if (num_outputs < 0)
    num_outputs = schema.CalculateOutput(static_cast<int>(inputs.size()), def.args());
  if (num_outputs < 0)
    Throw(ErrorCode::kInvalidArgument, "operator ", op, " has ", schema.expected_outputs(),
          " outputs; say how many");
  for (int o = 0; o < num_outputs; ++o) def.Output(StrCat("output", o));
  if (std::string why = schema.Verify(def); !why.empty())
    Throw(ErrorCode::kInvalidArgument, why, "; in ", ToString(def));
  return def;
}

}  // namespace detail

namespace testing {

// Dtypes and shapes of the outputs, from what is said of the inputs: extents may be symbols, and
// what is left out of a TensorInfo is unknown. `num_outputs` only where attributes do not decide
// it. Errors: those of inference; kInvalidArgument for a wrong number of inputs or attributes.
//
//   Infer("my_gemm", {{DType::kFloat32, {Sym("N"), 3}}, {DType::kFloat32, {3, 4}}})
inline std::vector<TensorInfo> Infer(const std::string& op, const std::vector<TensorInfo>& inputs,
                                     const Arguments& args = {}, int num_outputs = -1) {
  const OperatorDef def =
      detail::TestNode(op, std::vector<bool>(inputs.size(), true), args, num_outputs);
  return OpRegistry::Global().GetSchema(op).InferOutputs(def, inputs);
}

// Runs it once. A default-constructed Tensor leaves an optional input out; the device is that of
// the options, or of the first input. Errors: as Invoke.
inline std::vector<Tensor> Forward(const std::string& op, const std::vector<Tensor>& inputs,
                                   const Arguments& args = {}, const InvokeOptions& options = {}) {
  Load();
  return Invoke(op, inputs, args, options);
}

// The gradients of the inputs, from those of the outputs: runs the operator and then those that
// compute its gradient. A default-constructed Tensor is an output that no gradient comes from, or
// an input that gets none. Errors: those of the operators and of GetGradientForOp; kUnsupported for
// a sparse gradient.
inline std::vector<Tensor> Backward(const std::string& op, const std::vector<Tensor>& inputs,
                                    const std::vector<Tensor>& output_gradients,
                                    const Arguments& args = {}, Device device = {}) {
  OperatorDef def = detail::TestNode(op, detail::PresentInputs(inputs), args,
                                     static_cast<int>(output_gradients.size()));
  def.Device(device);
  Workspace ws;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!def.inputs()[i].empty()) *ws.CreateTensor(def.inputs()[i]) = inputs[i];
  const auto forward = CreateOperator(def, &ws);  // it may keep what its gradient needs
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

// Compares the gradient with differences of forward runs (op/gradient/gradient_check.hpp). As many
// outputs as the attributes decide.
inline GradientCheckResult CheckGradient(const std::string& op, const std::vector<Tensor>& inputs,
                                         const Arguments& args = {},
                                         const GradientCheckOptions& options = {}) {
  const OperatorDef def = detail::TestNode(op, detail::PresentInputs(inputs), args, -1);
  return ::opkit::CheckGradient(def, inputs, options);
}

// All that op/check.hpp tests, with inputs that are made for it or with the caller's.
inline CheckReport CheckOperator(const std::string& op, const CheckOptions& options = {}) {
  Load();
  return ::opkit::CheckOperator(op, options);
}
inline CheckReport CheckOperator(const std::string& op, const std::vector<Tensor>& inputs,
                                 const Arguments& args = {}, const CheckOptions& options = {}) {
  const OperatorDef def =
      detail::TestNode(op, detail::PresentInputs(inputs), args, options.num_outputs);
  return ::opkit::CheckOperator(def, inputs, options);
}

}  // namespace testing
}  // namespace opkit

#endif  // OPKIT_PLUGIN_TESTING_HPP_
