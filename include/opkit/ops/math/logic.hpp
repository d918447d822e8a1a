// Operators with a result of bool: And, Equal, Greater, GreaterOrEqual, IsInf, IsNaN, Less,
// LessOrEqual, Or, Xor.
// Source: the ONNX operator pages (https://onnx.ai/onnx/operators), opset 21.
#ifndef OPKIT_OPS_MATH_LOGIC_HPP_
#define OPKIT_OPS_MATH_LOGIC_HPP_

#include "opkit/ops/math/element_functions.hpp"
#include "opkit/ops/support/elementwise.hpp"
#include "opkit/ops/text/string_broadcast.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Defines the operator of a comparison, with schema and registration.
#define OPKIT_PREDICATE(name, Types, doc)                                         \
  using name##Op = detail::BinaryOperator<detail::name##Function, Types, bool>;   \
  OPKIT_STANDARD_OPERATOR(name, kNone, name##Op).FillUsing([](OpSchema& schema) { \
    detail::DescribePredicate(schema, doc, Types::DTypes());                      \
  })

OPKIT_PREDICATE(And, ElementTypes<bool>, "C is true where A and B are.");
OPKIT_PREDICATE(Greater, NumericTypes, "C is true where A is above B.");
OPKIT_PREDICATE(GreaterOrEqual, NumericTypes, "C is true where A is above B or equals it.");
OPKIT_PREDICATE(Less, NumericTypes, "C is true where A is below B.");
OPKIT_PREDICATE(LessOrEqual, NumericTypes, "C is true where A is below B or equals it.");
OPKIT_PREDICATE(Or, ElementTypes<bool>, "C is true where A is, or B, or both.");
OPKIT_PREDICATE(Xor, ElementTypes<bool>, "C is true where one of A and B is.");
#undef OPKIT_PREDICATE

class EqualOp : public detail::BinaryOperator<detail::EqualFunction, PlainTypes, bool> {
 public:
  using BinaryOperator::BinaryOperator;
  bool RunOnDevice() override {
    if (Input(0).dtype() != DType::kString) [[likely]]
      return BinaryOperator::RunOnDevice();
    const Tensor &a = DenseInput(0), &b = DenseInput(1);
    Tensor* c = InferredOutput(0);
    auto* equal = c->mutable_data<bool>();
    detail::ForEachPair(
        a, b, c->shape(),
        [&](int64_t i, const std::string& x, const std::string& y) { equal[i] = x == y; });
    return true;
  }
};

OPKIT_STANDARD_OPERATOR(Equal, kNone, EqualOp).FillUsing([](OpSchema& schema) {
  detail::DescribePredicate(schema, "C is true where A equals B; a NaN equals nothing.",
                            WithStrings(PlainTypes::DTypes()));
});

namespace detail {

// Computes y = F::Apply(x, attributes) for each element, x of type T, y of bool.
template <class F, class T>
void RunTest(const ElementRun& run) {
  const auto* x = static_cast<const T*>(run.in[0]);
  auto* y = static_cast<uint8_t*>(run.out);
  for (int64_t i = 0; i < run.n; ++i) y[i] = F::Apply(LoadElement<T>(x[i]), run.attributes);
}
// An operator that tests each element of its input, of one of FloatTypes, by F.
template <class F>
class TestOperator : public ElementwiseOperator {
 public:
  TestOperator(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : ElementwiseOperator(def, ws, config) {
    for (int i = 0; const AttributeSchema& attribute : schema().attributes())
      SetAttribute(i++, Arg<int64_t>(attribute.name) != 0 ? 1.f : 0.f);
  }

 protected:
  ElementKernel FindKernel() const override {
    return FloatTypes::Find<ElementKernel>(Input(0).dtype(),
                                           []<class T>() { return &RunTest<F, T>; });
  }
};
inline auto TestSchema(const char* doc) {
  return [=](OpSchema& schema) {
    schema.Doc(doc)
        .Input(0, "X", "a tensor of any shape", FloatTypes::DTypes())
        .Output(0, "Y", "of the shape of X", {DType::kBool})
        .PointwiseCost(1)
        .Infer([](InferenceContext& c) {
          c.SetOutput(0, DType::kBool, c.input_shape(0));
          c.SetInput(0, DType::kUndefined, c.output(0).shape);
        });
  };
}

}  // namespace detail

using IsInfOp = detail::TestOperator<detail::IsInfFunction>;
using IsNaNOp = detail::TestOperator<detail::IsNaNFunction>;

OPKIT_STANDARD_OPERATOR(IsInf, kNone, IsInfOp)
    .FillUsing(detail::TestSchema("Y is true where X is infinite."))
    .Arg<int64_t>("detect_negative", "0: false for the negative infinity", 1)
    .Arg<int64_t>("detect_positive", "0: false for the positive infinity", 1);
OPKIT_STANDARD_OPERATOR(IsNaN, kNone, IsNaNOp)
    .FillUsing(detail::TestSchema("Y is true where X is a NaN."));

}}  // namespace opkit

#endif  // OPKIT_OPS_MATH_LOGIC_HPP_
