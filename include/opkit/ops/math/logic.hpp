// Operators with a result of bool: And, Equal, Greater, GreaterOrEqual, Less, LessOrEqual, Or.
// Source: the ONNX operator pages (https://onnx.ai/onnx/operators), opset 21.
#ifndef OPKIT_OPS_MATH_LOGIC_HPP_
#define OPKIT_OPS_MATH_LOGIC_HPP_

#include "opkit/ops/support/elementwise.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
// Defines a function of two elements, and its operator with schema and registration.
#define OPKIT_PREDICATE(name, op, Types, doc)                                     \
  namespace detail {                                                              \
  struct name##Function {                                                         \
    template <class C>                                                            \
    static bool Apply(C a, C b) {                                                 \
      return a op b;                                                              \
    }                                                                             \
  };                                                                              \
  }                                                                               \
  using name##Op = detail::BinaryOperator<detail::name##Function, Types, bool>;   \
  OPKIT_STANDARD_OPERATOR(name, kNone, name##Op).FillUsing([](OpSchema& schema) { \
    detail::DescribePredicate(schema, doc, Types::DTypes());                      \
  })

OPKIT_PREDICATE(And, &&, ElementTypes<bool>, "C is true where A and B are.");
OPKIT_PREDICATE(Equal, ==, PlainTypes, "C is true where A equals B; a NaN equals nothing.");
OPKIT_PREDICATE(Greater, >, NumericTypes, "C is true where A is above B.");
OPKIT_PREDICATE(GreaterOrEqual, >=, NumericTypes, "C is true where A is above B or equals it.");
OPKIT_PREDICATE(Less, <, NumericTypes, "C is true where A is below B.");
OPKIT_PREDICATE(LessOrEqual, <=, NumericTypes, "C is true where A is below B or equals it.");
OPKIT_PREDICATE(Or, ||, ElementTypes<bool>, "C is true where A is, or B, or both.");
#undef OPKIT_PREDICATE

}}  // namespace opkit

#endif  // OPKIT_OPS_MATH_LOGIC_HPP_
