#include "opkit/op/registration.hpp"

template <class Context>
class OfAnotherKindOp final : public opkit::Operator<Context> {
 public:
  USE_OPERATOR_FUNCTIONS(Context);
  using opkit::Operator<Context>::Operator;
  bool RunOnDevice() override { return true; }
};

OPERATOR_SCHEMA(OfAnotherKind).NumInputs(0).NumOutputs(0);
REGISTER_CPU_OPERATOR(OfAnotherKind, OfAnotherKindOp<opkit::CPUContext>);
