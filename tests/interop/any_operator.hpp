// Reads ONNX models whose operators the program does not register.
#ifndef OPKIT_TESTS_INTEROP_ANY_OPERATOR_HPP_
#define OPKIT_TESTS_INTEROP_ANY_OPERATOR_HPP_

#include "opkit/interop/onnx.hpp"

inline opkit::OnnxOptions AnyOperator() {
  opkit::OnnxOptions options;
  options.allow_unknown_operators = true;
  return options;
}

#endif  // OPKIT_TESTS_INTEROP_ANY_OPERATOR_HPP_
