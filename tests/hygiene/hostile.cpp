// Every header after hostile macros, in this order, as the second of the program's units. The
// toolkit's own macros are used too: they expand here.
// clang-format off
#include "std_headers.hpp"
#include "hostile_macros.hpp"
#include "units.hpp"
// clang-format on

template <class Context>
class AmongHostileMacrosOp final : public opkit::Operator<Context> {
 public:
  USE_OPERATOR_FUNCTIONS(Context);
  using opkit::Operator<Context>::Operator;
  bool RunOnDevice() override {
    const int value = this->template GetSingleArgument<int>("value", 0);
    const int limit = this->template GetSingleArgument<int>("limit", 0);
    OPKIT_ASSERT(limit > 0);
    OPKIT_ENFORCE(value <= limit, "but found ", value);
    return true;
  }
};

OPERATOR_SCHEMA(AmongHostileMacros).NumInputs(0).NumOutputs(0).Arg("value", "").Arg("limit", "");
REGISTER_CPU_OPERATOR(AmongHostileMacros, AmongHostileMacrosOp<opkit::CPUContext>);

Seen SeenAmongHostileMacros() { return SeenHere(); }
