// compiles
// flags: -DOPKIT_NO_SHORT_MACROS
#define REGISTER_CPU_OPERATOR(name, ...) int name;
#include "opkit/op/registration.hpp"

class Good : public opkit::Operator<opkit::CPUContext> {
 public:
  OPKIT_USE_OPERATOR_FUNCTIONS(opkit::CPUContext);
  using Operator::Operator;
  bool RunOnDevice() override { return true; }
};

OPKIT_OPERATOR_SCHEMA(Good);
OPKIT_REGISTER_CPU_OPERATOR(Good, Good);
REGISTER_CPU_OPERATOR(theirs)
