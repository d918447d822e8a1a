// expect: REGISTER_*_OPERATOR(name, Class): Class needs a constructor (const opkit::OperatorDef&, opkit::Workspace*)
#include "opkit/op/registration.hpp"

class WithoutConstructor : public opkit::Operator<opkit::CPUContext> {
  bool RunOnDevice() override { return true; }
};

OPERATOR_SCHEMA(Broken);
REGISTER_CPU_OPERATOR(Broken, WithoutConstructor);
