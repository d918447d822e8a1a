// Operators whose result is true or false: And, Equal, Greater, GreaterOrEqual, Less, LessOrEqual,
// Or. Source: the ONNX operator pages (https://onnx.ai/onnx/operators), opset 21.
#ifndef OPKIT_OPS_MATH_LOGIC_HPP_
#define OPKIT_OPS_MATH_LOGIC_HPP_

#include "opkit/ops/support/elementwise.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

#define OPKIT_PREDICATE(name, op) \
  struct name {                   \
    template <class C>            \
    static bool Apply(C a, C b) { \
      return a op b;              \
    }                             \
  }
OPKIT_PREDICATE(AndFunction, &&);
OPKIT_PREDICATE(EqualFunction, ==);
OPKIT_PREDICATE(GreaterFunction, >);
OPKIT_PREDICATE(GreaterOrEqualFunction, >=);
OPKIT_PREDICATE(LessFunction, <);
OPKIT_PREDICATE(LessOrEqualFunction, <=);
OPKIT_PREDICATE(OrFunction, ||);
#undef OPKIT_PREDICATE

inline auto PredicateSchema(const char* doc, std::vector<DType> dtypes) {
  return [=](OpSchema& schema) {
    DescribePredicate(schema, doc, dtypes);
    schema.TestInputs([](DType dtype, uint64_t seed) {
      return MakeTestInputs(BroadcastTestShapes(seed), dtype, seed, 1, 5);
    });
  };
}

}  // namespace detail

using AndOp = detail::BinaryOperator<detail::AndFunction, ElementTypes<bool>, bool>;
using EqualOp = detail::BinaryOperator<detail::EqualFunction, PlainTypes, bool>;
using GreaterOp = detail::BinaryOperator<detail::GreaterFunction, NumericTypes, bool>;
using GreaterOrEqualOp = detail::BinaryOperator<detail::GreaterOrEqualFunction, NumericTypes, bool>;
using LessOp = detail::BinaryOperator<detail::LessFunction, NumericTypes, bool>;
using LessOrEqualOp = detail::BinaryOperator<detail::LessOrEqualFunction, NumericTypes, bool>;
using OrOp = detail::BinaryOperator<detail::OrFunction, ElementTypes<bool>, bool>;

OPKIT_OPERATOR_SCHEMA(And).FillUsing(detail::PredicateSchema("C is true where A and B are.",
                                                             {DType::kBool}));
OPKIT_OPERATOR_SCHEMA(Equal).FillUsing(detail::PredicateSchema(
    "C is true where A equals B; a NaN equals nothing.", PlainTypes::DTypes()));
OPKIT_OPERATOR_SCHEMA(Greater).FillUsing(detail::PredicateSchema("C is true where A is above B.",
                                                                 NumericTypes::DTypes()));
OPKIT_OPERATOR_SCHEMA(GreaterOrEqual)
    .FillUsing(detail::PredicateSchema("C is true where A is above B or equals it.",
                                       NumericTypes::DTypes()));
OPKIT_OPERATOR_SCHEMA(Less).FillUsing(detail::PredicateSchema("C is true where A is below B.",
                                                              NumericTypes::DTypes()));
OPKIT_OPERATOR_SCHEMA(LessOrEqual)
    .FillUsing(detail::PredicateSchema("C is true where A is below B or equals it.",
                                       NumericTypes::DTypes()));
OPKIT_OPERATOR_SCHEMA(Or).FillUsing(detail::PredicateSchema("C is true where A is, or B, or both.",
                                                            {DType::kBool}));

OPKIT_REGISTER_CPU_OPERATOR(And, AndOp);
OPKIT_REGISTER_CPU_OPERATOR(Equal, EqualOp);
OPKIT_REGISTER_CPU_OPERATOR(Greater, GreaterOp);
OPKIT_REGISTER_CPU_OPERATOR(GreaterOrEqual, GreaterOrEqualOp);
OPKIT_REGISTER_CPU_OPERATOR(Less, LessOp);
OPKIT_REGISTER_CPU_OPERATOR(LessOrEqual, LessOrEqualOp);
OPKIT_REGISTER_CPU_OPERATOR(Or, OrOp);

OPKIT_NO_GRADIENT(And);
OPKIT_NO_GRADIENT(Equal);
OPKIT_NO_GRADIENT(Greater);
OPKIT_NO_GRADIENT(GreaterOrEqual);
OPKIT_NO_GRADIENT(Less);
OPKIT_NO_GRADIENT(LessOrEqual);
OPKIT_NO_GRADIENT(Or);

}  // namespace opkit

#endif  // OPKIT_OPS_MATH_LOGIC_HPP_
