// Macros that run CheckOperator in a doctest suite, in one line. All failures come in one message,
// with the line of the macro.
#ifndef OPKIT_INTEROP_DOCTEST_HPP_
#define OPKIT_INTEROP_DOCTEST_HPP_

#include <doctest/doctest.h>

#include "opkit/op/check.hpp"

// Checks an operator inside a test case; takes the arguments of CheckOperator.
//   TEST_CASE("Axpy") { OPKIT_CHECK_OPERATOR("Axpy"); }
#define OPKIT_CHECK_OPERATOR(...)                                                  \
  do {                                                                             \
    const ::opkit::CheckReport opkit_report = ::opkit::CheckOperator(__VA_ARGS__); \
    DOCTEST_CHECK_MESSAGE(opkit_report.ok(), ToString(opkit_report));              \
  } while (0)

// Defines a test case, such as "CheckOperator Axpy". For namespace scope.
//   OPKIT_TEST_OPERATOR("Axpy");
#define OPKIT_TEST_OPERATOR(name, ...)                     \
  DOCTEST_TEST_CASE("CheckOperator " name) {               \
    OPKIT_CHECK_OPERATOR(name __VA_OPT__(, ) __VA_ARGS__); \
  }                                                        \
  static_assert(true)

#endif  // OPKIT_INTEROP_DOCTEST_HPP_
