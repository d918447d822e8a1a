// Tests of operators without a host program: a unit test that includes or links the source of a
// library calls inference, forward, backward and the checkers by the operator's name. The operators
// are loaded from this program by the same calls that load a shared object, so that they answer and
// fail as in production. Needs no test framework.
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

namespace opkit::inline OPKIT_ABI {
namespace testing {

// The operators of this program's own sources, loaded at the first call. Every function below calls
// it; call it yourself before anything else looks operators up (Invoke, CreateOperator, graphs).
// Errors: as Library::Load; kNotFound where no source includes author.hpp.
Library Load();

// Dtypes and shapes of the outputs, inferred from those of the inputs: extents may be symbols, and
// a member that a TensorInfo leaves out is unknown. `num_outputs` only where attributes do not
// decide it. Errors: those of inference; kInvalidArgument for a wrong number of inputs or
// attributes.
//
//   Infer("my_gemm", {{DType::kFloat32, {Sym("N"), 3}}, {DType::kFloat32, {3, 4}}})
std::vector<TensorInfo> Infer(const std::string& op, const std::vector<TensorInfo>& inputs,
                              const Arguments& args = {}, int num_outputs = -1);

// Runs the operator once. A default-constructed Tensor leaves an optional input out; the device is
// that of the options, or of the first input. Errors: as Invoke.
std::vector<Tensor> Forward(const std::string& op, const std::vector<Tensor>& inputs,
                            const Arguments& args = {}, const InvokeOptions& options = {});

// The gradients of the inputs, from those of the outputs: runs the operator and then those that
// compute its gradient. A default-constructed Tensor is an output that no gradient comes from, or
// an input that gets none. Errors: those of the operators and of GetGradientForOp; kUnsupported for
// a sparse gradient.
std::vector<Tensor> Backward(const std::string& op, const std::vector<Tensor>& inputs,
                             const std::vector<Tensor>& output_gradients,
                             const Arguments& args = {}, Device device = {});

// Compares the gradient with differences of forward runs (op/gradient/gradient_check.hpp). As many
// outputs as the attributes decide.
GradientCheckResult CheckGradient(const std::string& op, const std::vector<Tensor>& inputs,
                                  const Arguments& args = {},
                                  const GradientCheckOptions& options = {});

// Makes all the tests of op/check.hpp, with inputs that are made for it or with the caller's.
//
//   testing::CheckOperator("my_unpack", {packed}, {{"level", 3}});  // {}: it has no inputs
CheckReport CheckOperator(const std::string& op, const CheckOptions& options = {});
CheckReport CheckOperator(const std::string& op, const std::vector<Tensor>& inputs,
                          const Arguments& args = {}, const CheckOptions& options = {});
CheckReport CheckOperator(const std::string& op, std::initializer_list<Tensor> inputs,
                          const Arguments& args = {}, const CheckOptions& options = {});

}  // namespace testing
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/plugin/impl/testing.ipp"
#endif

#endif  // OPKIT_PLUGIN_TESTING_HPP_
