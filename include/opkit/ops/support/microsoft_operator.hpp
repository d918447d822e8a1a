// OPKIT_MICROSOFT_OPERATOR: registers an operator of ONNX Runtime's domain, com.microsoft. For the
// operators that no composition of ONNX's own operators replaces; the reader of ONNX files rewrites
// the others.
#ifndef OPKIT_OPS_SUPPORT_MICROSOFT_OPERATOR_HPP_
#define OPKIT_OPS_SUPPORT_MICROSOFT_OPERATOR_HPP_

#include "opkit/ops/support/standard_operator.hpp"

// Registers the reference kernel of an operator as "com.microsoft.<name>", without a gradient, and
// begins its schema: one output. The class comes last, so that it may contain commas.
//
//   OPKIT_MICROSOFT_OPERATOR(MatMulNBits, MatMulNBitsOp).NumInputs(3, 6)…;
#define OPKIT_MICROSOFT_OPERATOR(name, ...)                                                       \
  OPKIT_REGISTER_CPU_OPERATOR_STR("com.microsoft." #name, __VA_ARGS__);                           \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_gradient_) =                              \
      ::opkit::detail::RegisterGradientKind("com.microsoft." #name, ::opkit::GradientKind::kNone, \
                                            __FILE__, __LINE__);                                  \
  [[maybe_unused]] static ::opkit::OpSchema& OPKIT_UNIQUE(opkit_schema_) =                        \
      ::opkit::OpRegistry::Global()                                                               \
          .AddSchema("com.microsoft." #name, __FILE__, __LINE__)                                  \
          .NumOutputs(1)

#endif  // OPKIT_OPS_SUPPORT_MICROSOFT_OPERATOR_HPP_
