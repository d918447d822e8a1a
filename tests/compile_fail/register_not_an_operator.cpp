// expect: REGISTER_*_OPERATOR(name, Class): Class must derive from opkit::Operator<Context>
#include "opkit/op/registration.hpp"

struct NotAnOperator {
  NotAnOperator(const opkit::OperatorDef&, opkit::Workspace*) {}
};

OPERATOR_SCHEMA(Broken);
REGISTER_CPU_OPERATOR(Broken, NotAnOperator);
