// A class registration links if and only if its operator's schema is in the same binary.
#include "opkit/op/registration.hpp"

namespace {

class NothingOp final : public opkit::Operator<opkit::CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override { return true; }
};

}  // namespace

#ifdef IN_NAMESPACE
namespace outer::inner {
#endif

#ifdef WITH_SCHEMA
OPERATOR_SCHEMA(Nothing).NumInputs(0).NumOutputs(0);
#endif
REGISTER_CPU_OPERATOR(Nothing, NothingOp);
#ifdef SCHEMA_AFTER
OPERATOR_SCHEMA(Nothing).NumInputs(0).NumOutputs(0);
#endif

#ifdef IN_NAMESPACE
}  // namespace outer::inner
#endif

#ifndef NO_MAIN
int main() {
  opkit::Workspace ws;
  return opkit::CreateOperator(opkit::OperatorDef("Nothing"), &ws)->Run() ? 0 : 1;
}
#endif
