// compiles
#include "opkit/op/registration.hpp"

class Good : public opkit::Operator<opkit::CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override { return true; }
};

OPERATOR_SCHEMA(Good);
REGISTER_CPU_OPERATOR(Good, Good);
