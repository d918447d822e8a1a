// expect-first: OPERATOR_SCHEMA goes at namespace scope, outside of functions and classes
// expect: REGISTER_OPERATOR goes at namespace scope, outside of functions and classes
// expect: REGISTER_OPERATOR_STR goes at namespace scope, outside of functions and classes
// expect: REGISTER_OPERATOR_CREATOR goes at namespace scope, outside of functions and classes
// expect: OPKIT_REGISTER_BACKEND_RANK goes at namespace scope, outside of functions and classes
// expect: REGISTER_OP goes at namespace scope, outside of functions and classes
// expect: OPKIT_OP goes at namespace scope, outside of functions and classes
// expect: REGISTER_GRADIENT goes at namespace scope, outside of functions and classes
// expect: NO_GRADIENT goes at namespace scope, outside of functions and classes
// expect: SHOULD_NOT_DO_GRADIENT goes at namespace scope, outside of functions and classes
// expect: GRADIENT_NOT_IMPLEMENTED_YET goes at namespace scope, outside of functions and classes
// expect: OPKIT_REGISTRATIONS goes at namespace scope, outside of functions and classes
// expect: OPKIT_USE_REGISTRATIONS goes at namespace scope, outside of functions and classes
#include "macros.hpp"

void Place0() { OPERATOR_SCHEMA(Made).NumInputs(1); }
void Place1() { REGISTER_CPU_OPERATOR(Good, GoodOp); }
void Place2() { REGISTER_CPU_STREAM_OPERATOR_STR("Good", GoodOp); }
void Place3() { REGISTER_CPU_OPERATOR_CREATOR(Good, MakeGood); }
void Place4() { OPKIT_REGISTER_BACKEND_RANK("mine", 5); }
void Place5() { REGISTER_OP(made).setForward(Forward); }
void Place6() { OPKIT_OP(Twice).SameShape<"x", "y">().Kernel<CPUContext, float>(); }
void Place7() { REGISTER_GRADIENT(Good, GoodGradient); }
void Place8() { NO_GRADIENT(Good); }
void Place9() { SHOULD_NOT_DO_GRADIENT(Good); }
void Place10() { GRADIENT_NOT_IMPLEMENTED_YET(Good); }
void Place11() { OPKIT_REGISTRATIONS(mine) }
void Place12() { OPKIT_USE_REGISTRATIONS(mine); }
