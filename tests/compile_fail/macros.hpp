// Classes and functions for the registrations of the macro_*.cpp files.
#ifndef OPKIT_TESTS_COMPILE_FAIL_MACROS_HPP_
#define OPKIT_TESTS_COMPILE_FAIL_MACROS_HPP_

#include "opkit/op/function/function_operator.hpp"
#include "opkit/op/gradient/gradient.hpp"
#include "opkit/op/registration.hpp"
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

class GoodOp : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override { return true; }
};
OPERATOR_SCHEMA(Good);
inline std::unique_ptr<OperatorBase> MakeGood(const OperatorDef& def, Workspace* ws) {
  return std::make_unique<GoodOp>(def, ws);
}
class GoodGradient : public GradientMakerBase {
 public:
  using GradientMakerBase::GradientMakerBase;
};
inline int Forward(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, OpResource&) {
  return SUCCESS;
}
template <class Context, class T>
void Twice(Context&, In<"x", T> x, Out<"y", T> y) {
  for (int64_t i = 0; i < x.size(); ++i) y[i] = 2 * x[i];
}

#endif  // OPKIT_TESTS_COMPILE_FAIL_MACROS_HPP_
