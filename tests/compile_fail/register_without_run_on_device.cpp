// expect: REGISTER_*_OPERATOR(name, Class): Class must override bool RunOnDevice()
#include "opkit/op/registration.hpp"

class WithoutRun : public opkit::Operator<opkit::CPUContext> {
 public:
  using Operator::Operator;
};

OPERATOR_SCHEMA(Broken);
REGISTER_CPU_OPERATOR(Broken, WithoutRun);
