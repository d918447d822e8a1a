// expect: OPERATOR_SCHEMA_goes_at_namespace_scope_not_in_a_class
// expect: REGISTER_OPERATOR_goes_at_namespace_scope_not_in_a_class
// expect: REGISTER_OPERATOR_STR_goes_at_namespace_scope_not_in_a_class
// expect: REGISTER_OPERATOR_CREATOR_goes_at_namespace_scope_not_in_a_class
// expect: OPKIT_REGISTER_BACKEND_RANK_goes_at_namespace_scope_not_in_a_class
// expect: REGISTER_OP_goes_at_namespace_scope_not_in_a_class
// expect: OPKIT_OP_goes_at_namespace_scope_not_in_a_class
// expect: REGISTER_GRADIENT_goes_at_namespace_scope_not_in_a_class
// expect: NO_GRADIENT_goes_at_namespace_scope_not_in_a_class
// expect: SHOULD_NOT_DO_GRADIENT_goes_at_namespace_scope_not_in_a_class
// expect: GRADIENT_NOT_IMPLEMENTED_YET_goes_at_namespace_scope_not_in_a_class
// expect: OPKIT_REGISTRATIONS_goes_at_namespace_scope_not_in_a_class
// expect: OPKIT_USE_REGISTRATIONS_goes_at_namespace_scope_not_in_a_class
#include "macros.hpp"

struct Place0 {
  OPERATOR_SCHEMA(Made).NumInputs(1);
};
struct Place1 {
  REGISTER_CPU_OPERATOR(Good, GoodOp);
};
struct Place2 {
  REGISTER_CPU_STREAM_OPERATOR_STR("Good", GoodOp);
};
struct Place3 {
  REGISTER_CPU_OPERATOR_CREATOR(Good, MakeGood);
};
struct Place4 {
  OPKIT_REGISTER_BACKEND_RANK("mine", 5);
};
struct Place5 {
  REGISTER_OP(made).setForward(Forward);
};
struct Place6 {
  OPKIT_OP(Twice).SameShape<"x", "y">().Kernel<CPUContext, float>();
};
struct Place7 {
  REGISTER_GRADIENT(Good, GoodGradient);
};
struct Place8 {
  NO_GRADIENT(Good);
};
struct Place9 {
  SHOULD_NOT_DO_GRADIENT(Good);
};
struct Place10 {
  GRADIENT_NOT_IMPLEMENTED_YET(Good);
};
struct Place11 {
  OPKIT_REGISTRATIONS(mine)
};
struct Place12 {
  OPKIT_USE_REGISTRATIONS(mine);
};
