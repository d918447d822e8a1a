// Tests of operators without a host program. A unit test that includes or links the source of a
// library calls inference, forward, backward and the checkers by the operator's name. The code that
// loads shared objects loads the operators from this program, so that operators behave and fail as
// in production. Needs no test framework.
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

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace testing {

// Loads the operators of this program's own sources, once. Every function below calls it. Call it
// yourself before other code looks operators up (Invoke, CreateOperator, graphs). Throws as
// Library::Load does, and kNotFound if no source includes author.hpp.
Library Load();

// Returns dtypes and shapes of the outputs, inferred from those of the inputs. Extents may be
// symbols; members that a TensorInfo leaves out are unknown. Give `num_outputs` only if the
// attributes do not decide it. Throws the errors of inference, and kInvalidArgument for a wrong
// number of inputs or wrong attributes.
//
//   Infer("my_gemm", {{DType::kFloat32, {Sym("N"), 3}}, {DType::kFloat32, {3, 4}}})
std::vector<TensorInfo> Infer(const std::string& op, const std::vector<TensorInfo>& inputs,
                              const Arguments& args = {}, int num_outputs = -1);

// Runs the operator once. A default-constructed Tensor leaves an optional input out. The device is
// that of the options, else that of the first input. Throws as Invoke does.
std::vector<Tensor> Forward(const std::string& op, const std::vector<Tensor>& inputs,
                            const Arguments& args = {}, const InvokeOptions& options = {});

// Returns the gradients of the inputs for the given gradients of the outputs. Runs the operator,
// then the operators of its gradient. A default-constructed Tensor stands for a missing gradient,
// of an output or an input. Throws the errors of the operators and of GetGradientForOp, and
// kUnsupported for a sparse gradient.
std::vector<Tensor> Backward(const std::string& op, const std::vector<Tensor>& inputs,
                             const std::vector<Tensor>& output_gradients,
                             const Arguments& args = {}, Device device = {});

// Compares the gradient with differences of forward runs (op/gradient/gradient_check.hpp). The
// attributes must decide the number of outputs.
GradientCheckResult CheckGradient(const std::string& op, const std::vector<Tensor>& inputs,
                                  const Arguments& args = {},
                                  const GradientCheckOptions& options = {});

// Runs all checks of op/check.hpp, with generated inputs or the caller's.
//
//   testing::CheckOperator("my_unpack", {packed}, {{"level", 3}});  // {}: it has no inputs
CheckReport CheckOperator(const std::string& op, const CheckOptions& options = {});
CheckReport CheckOperator(const std::string& op, const std::vector<Tensor>& inputs,
                          const Arguments& args = {}, const CheckOptions& options = {});
CheckReport CheckOperator(const std::string& op, std::initializer_list<Tensor> inputs,
                          const Arguments& args = {}, const CheckOptions& options = {});

}  // namespace testing
}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/plugin/impl/testing.ipp"
#endif

#endif  // OPKIT_PLUGIN_TESTING_HPP_
